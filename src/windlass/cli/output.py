"""How data leaves: to stdout, in the form asked for; words go to stderr.

Tables are drawn here and not by Rich: a plain table needs no import, and what is piped must be
plain anyhow.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from windlass.cli import columns, exits
from windlass.cli.columns import width as width

STATE_COLOURS = {
    "held": "yellow",
    "queued": "yellow",
    "starting": "cyan",
    "running": "cyan",
    "stopping": "magenta",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
}


def colour_wanted(error: bool = False) -> bool:
    """Colour only on a terminal, and not when the user said no (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return (sys.stderr if error else sys.stdout).isatty()


def dim(text: str) -> str:
    return click.style(text, dim=True) if colour_wanted(error=True) else text


def state(word: str, *, error: bool = False) -> str:
    return click.style(word, fg=STATE_COLOURS.get(word)) if colour_wanted(error) else word


def print_json(value: Any) -> None:
    click.echo(json.dumps(with_api(value), ensure_ascii=False, indent=2, default=str))


def with_api(value: Any) -> Any:
    """Every JSON answer says which version of its shape it has."""
    return {"api": 1, **value} if isinstance(value, Mapping) else {"api": 1, "items": list(value)}


def print_jsonl(items: Sequence[Any]) -> None:
    for item in items:
        click.echo(json.dumps(item, ensure_ascii=False, default=str))


def print_yaml(value: Any) -> None:
    import yaml

    plain = json.loads(json.dumps(value, default=str))
    click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)


def print_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([name.lower() for name in head])
    writer.writerows(rows)


def print_table(
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    colour: str | None = "STATE",
    spare: Sequence[str] = (),
    indent: int = 0,
) -> None:
    """Columns as wide as they need; on a terminal as wide as there is room for."""
    room = columns.there()
    head, texts = columns.fitted(
        head,
        [["" if cell is None else tame(str(cell)) for cell in row] for row in rows],
        room and room - indent,
        spare,
    )
    widths = [
        max([width(name), *(width(row[at]) for row in texts)]) for at, name in enumerate(head)
    ]
    blank = " " * indent
    line = "  ".join(pad(name, widths[at]) for at, name in enumerate(head))
    click.echo((blank + line).rstrip())
    for row in texts:
        cells = []
        for at, cell in enumerate(row):
            text = pad(cell, widths[at]) if at < len(row) - 1 else cell
            cells.append(text.replace(cell, state(cell), 1) if head[at] == colour else text)
        click.echo((blank + "  ".join(cells)).rstrip())


def tame(text: str) -> str:
    """On one line, and without what a terminal would take for an order."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def safe(text: str) -> str:
    """As `tame`, of several lines."""
    if text.isprintable():
        return text
    return "\n".join(tame(line.expandtabs()) for line in text.split("\n"))


def pad(text: str, columns: int) -> str:
    return text + " " * max(0, columns - width(text))


def quiet_pipe() -> int:
    """Whoever read us has gone (`| head`): end without a word, as other tools do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exits.BROKEN_PIPE


def megabytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
