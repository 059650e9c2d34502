"""The report of one or several runs: one HTML file with everything in it, nothing fetched.

The plots are SVG, drawn here from plain numbers; colours follow the reader's light or dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 240, 64, 34, 12, 14
COLOURS = 6
MOST_TENANTS = 24

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2330; --soft: #667085; --line: #dfe3ea;
  --c0: #2563c9; --c1: #c2560c; --c2: #1a7f4b; --c3: #8a3ab9; --c4: #b3261e; --c5: #5f6b7a; }
@media (prefers-color-scheme: dark) { :root { --back: #14181f; --text: #e6e9ef; --soft: #97a1b2;
  --line: #2c3440; --c0: #6ea8fe; --c1: #f0a35e; --c2: #5fc98e; --c3: #c792ea; --c4: #f28b82;
  --c5: #a9b4c2; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p.note { color: var(--soft); margin: .2rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .9rem .2rem 0; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; color: var(--soft); }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 1.6; }
""" + "".join(
    f".s{at} {{ stroke: var(--c{at}); }} .f{at} {{ fill: var(--c{at}); }}\n"
    for at in range(COLOURS)
)

ROWS: tuple[tuple[str, str, str], ...] = (
    ("jobs", "jobs", "count"),
    ("finished", "finished", "count"),
    ("rejected", "rejected (can never fit)", "count"),
    ("makespan_s", "makespan", "time"),
    ("wait_s.mean", "wait, mean", "time"),
    ("wait_s.p50", "wait, median", "time"),
    ("wait_s.p90", "wait, 90 %", "time"),
    ("wait_s.p99", "wait, 99 %", "time"),
    ("wait_s.max", "wait, longest", "time"),
    ("jct_s.mean", "completion, mean", "time"),
    ("jct_s.p90", "completion, 90 %", "time"),
    ("slowdown.mean", "slowdown, mean", "number"),
    ("utilisation.allocated", "allocated", "share"),
    ("utilisation.useful", "useful", "share"),
    ("fragmentation", "fragmentation of what is free", "share"),
    ("fairness.jain", "fairness (Jain)", "number"),
    ("fairness.unserved_nominal_s", "own quota unserved, longest", "time"),
    ("preemptions", "preemptions", "count"),
    ("reservation_slip_s", "reservation slip, longest", "time"),
    ("decisions", "decisions", "count"),
    ("decisions_per_s", "decisions per second", "count"),
    ("tick_ms.p99", "tick, 99 % (ms)", "number"),
    ("peak_rss_mb", "memory, peak (MB)", "count"),
    ("invariant_violations", "invariant violations", "count"),
)


def rows(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The figures of several runs side by side, for people: [name, one cell per run]."""
    return [
        [words, *(show(_at(result, path), kind) for result in results)]
        for path, words, kind in ROWS
    ]


def show(value: float, kind: str) -> str:
    if kind == "time":
        return duration(value)
    if kind == "share":
        return f"{value * 100:.1f} %"
    if kind == "count":
        return f"{value:,.0f}"
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """1.5 s, 3 m 20 s, 2 h 5 m, 4 d 3 h."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60)):
        if whole >= size:
            return f"{whole // size:,} {unit} {whole % size // part} {small}"
    return f"{whole // 60} m {whole % 60} s"


def write(
    title: str,
    names: Sequence[str],
    results: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Points]],
) -> str:
    """The page, as text."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _table(["", *names], rows(results)),
    ]
    plots = (
        ("pending", "Jobs that wait", "mean over each stretch of time", False),
        ("utilisation", "Utilisation", "allocated share of what is up", True),
        ("fragmentation", "Fragmentation", "share of what is free that no job could use", True),
    )
    for key, head, note, share in plots:
        parts += [f"<h2>{head}</h2>", f'<p class="note">{note}; hours since the first submit</p>']
        parts.append(lines(names, [run.get(key, ()) for run in curves], share=share))
    parts += ["<h2>Waits by tenant</h2>", '<p class="note">mean, and 90 % (thin)</p>']
    parts.append(bars(names, results))
    parts += [_tenants(name, result) for name, result in zip(names, results, strict=True)]
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def lines(names: Sequence[str], series: Sequence[Points], *, share: bool = False) -> str:
    """Curves over time, one per run."""
    points = [point for one in series for point in one]
    if not points:
        return '<p class="note">nothing to draw</p>'
    right = max(x for x, _ in points) or 1.0
    high = 1.0 if share else _ceiling(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / right * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - min(y, high) / high * (HEIGHT - BOTTOM - TOP)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for at in range(5):
        _, y = place(0, high * at / 4)
        label = f"{at * 25} %" if share else f"{high * at / 4:,.4g}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for at in range(6):
        x, _ = place(right * at / 5, 0)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
            f"{right * at / 5:,.3g}</text>"
        )
    for at, (name, one) in enumerate(zip(names, series, strict=True)):
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in one)
        parts.append(
            f'<polyline class="curve s{at % COLOURS}" points="{path}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    parts.append("</svg>")
    return "".join(parts) + _legend(names)


def bars(names: Sequence[str], results: Sequence[Mapping[str, Any]]) -> str:
    """Waits of the tenants that wait longest, a bar per run."""
    worst: dict[str, float] = {}
    for result in results:
        for tenant, found in result["by_tenant"].items():
            worst[tenant] = max(worst.get(tenant, 0.0), found["wait_s"]["p90"])
    tenants = sorted(worst, key=lambda tenant: (-worst[tenant], tenant))[:MOST_TENANTS]
    if not tenants:
        return '<p class="note">nothing to draw</p>'
    most = max(
        max(found["wait_s"]["mean"], found["wait_s"]["p90"])
        for result in results
        for tenant, found in result["by_tenant"].items()
        if tenant in tenants
    )
    room, thick = WIDTH - 170 - 110, 12
    height = len(tenants) * (len(results) * thick + 8) + 4
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    y = 4.0
    for tenant in tenants:
        middle = y + len(results) * thick / 2 + 4
        parts.append(
            f'<text x="160" y="{middle:.0f}" text-anchor="end">{escape(tenant[:24])}</text>'
        )
        for at, result in enumerate(results):
            found = result["by_tenant"].get(tenant, {}).get("wait_s", {"mean": 0, "p90": 0})
            wide = [found[key] / most * room if most else 0.0 for key in ("mean", "p90")]
            colour = f"f{at % COLOURS}"
            parts.append(
                f'<rect class="{colour}" x="170" y="{y:.0f}" width="{wide[0]:.1f}" height="8"/>'
                f'<rect class="{colour}" x="170" y="{y + 3:.0f}" width="{wide[1]:.1f}" '
                f'height="2" opacity=".6"><title>{escape(names[at])}</title></rect>'
                f'<text x="{176 + max(wide):.0f}" y="{y + 8:.0f}">{duration(found["mean"])}</text>'
            )
            y += thick
        y += 8
    return "".join(parts) + "</svg>" + _legend(names)


def _tenants(name: str, result: Mapping[str, Any]) -> str:
    hours = f"{result['details']['resource']}_hours"
    head = ["tenant", "jobs", "finished", "rejected", "wait, mean", "wait, 90 %", "wait, longest",
            hours.replace("_", "-"), "preemptions"]  # fmt: skip
    body = [
        [
            tenant,
            *(f"{found[key]:,}" for key in ("jobs", "finished", "rejected")),
            *(duration(found["wait_s"][key]) for key in ("mean", "p90", "max")),
            f"{found[hours]:,.1f}",
            f"{found['preemptions']:,}",
        ]
        for tenant, found in result["by_tenant"].items()
    ]
    return f"<h2>Tenants: {escape(name)}</h2>" + _table(head, body)


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    ]
    return f'<div class="wide"><table><tr>{top}</tr>{"".join(lines)}</table></div>'


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    marks = " &nbsp; ".join(
        f'<svg style="width:12px;height:10px" viewBox="0 0 12 10">'
        f'<rect class="f{at % COLOURS}" width="12" height="10"/></svg> {escape(name)}'
        for at, name in enumerate(names)
    )
    return f'<p class="note">{marks}</p>'


def _at(result: Mapping[str, Any], path: str) -> float:
    value: Any = result
    for word in path.split("."):
        value = value[word]
    return float(value)


def _ceiling(value: float) -> float:
    """The next round number, for the end of an axis."""
    if value <= 0:
        return 1.0
    size = 10 ** math.floor(math.log10(value))
    return float(next(size * step for step in (1, 2, 4, 5, 10) if size * step >= value))
