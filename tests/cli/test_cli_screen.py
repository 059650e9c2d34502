"""What a follower sees: lines, prefixes, bars, curves, times."""

from __future__ import annotations

import io
import math

import pytest

from windlass.cli import moments
from windlass.cli.follow import Screen, fold, label, sentence
from windlass.core import plot
from windlass.core.errors import InvalidInput


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(
    ranks: int, *, terminal: bool = False, **more: object
) -> tuple[Screen, io.StringIO, io.StringIO]:
    kind = Terminal if terminal else io.StringIO
    out, err = kind(), kind()
    names = [f"worker-{index}-0" for index in range(ranks)]
    return Screen(names, out=out, err=err, colour=False, **more), out, err  # type: ignore[arg-type]


def test_one_rank_is_passed_on_as_it_wrote() -> None:
    made, out, err = screen(1)
    made.log({"rank": "worker-0-0", "stream": "out", "text": "10%\r20%\r"})
    made.log({"rank": "worker-0-0", "stream": "err", "text": "oh\n"})
    made.finish()
    assert (out.getvalue(), err.getvalue()) == ("10%\r20%\r", "oh\n")


def test_lines_of_several_ranks_stay_whole_and_named() -> None:
    made, out, err = screen(2)
    made.log({"rank": "worker-0-0", "stream": "out", "text": "a1"})
    made.log({"rank": "worker-1-0", "stream": "out", "text": "b1\nb2\nb"})
    made.log({"rank": "worker-0-0", "stream": "out", "text": "a2\n"})
    made.log({"rank": "worker-1-0", "stream": "err", "text": "E\n"})
    made.finish()
    assert out.getvalue() == "worker-1 │ b1\nworker-1 │ b2\nworker-0 │ a1a2\nworker-1 │ b\n"
    assert err.getvalue() == "worker-1 │ E\n"


def test_a_bar_moves_on_a_terminal_and_is_one_line_in_a_file() -> None:
    made, out, _ = screen(2)
    made.log({"rank": "worker-0-0", "stream": "out", "text": "10%\r20%\r30%\n"})
    assert out.getvalue() == "worker-0 │ 30%\n"
    times = iter([1.0, 1.01, 2.0])
    made, out, _ = screen(2, terminal=True, clock=lambda: next(times))
    for text in ("\r10%", "\r20%", "\r30%", "\n"):
        made.log({"rank": "worker-0-0", "stream": "out", "text": text})
    assert out.getvalue() == ("worker-0 │ 10%\r\x1b[Kworker-0 │ 30%\r\x1b[Kworker-0 │ 30%\n"), (
        "the one in between came too soon to be drawn"
    )


def test_our_words_do_not_stick_to_an_open_line() -> None:
    made, out, err = screen(1, terminal=True)
    made.log({"rank": "worker-0-0", "stream": "out", "text": "no end"})
    made.note("job running")
    assert err.getvalue() == "\njob running\n"


@pytest.mark.parametrize(
    ("rank", "shown"),
    [("worker-0-0", "worker-0"), ("worker-0-1", "worker-0-1"), ("ps-3-0", "ps-3"), ("x", "x")],
)
def test_labels(rank: str, shown: str) -> None:
    assert label(rank) == shown


def test_folding() -> None:
    assert [fold(text) for text in ("a", "a\rb", "a\r", "\r", "")] == ["a", "b", "a", "", ""]


def test_moves_are_said_and_chatter_is_not() -> None:
    move = {"kind": "moved", "job_name": "otter", "data": {"to": "running"}, "reason": "on local"}
    assert sentence(move) == "otter running: on local"
    assert sentence({"kind": "order", "job_name": "otter"}) == ""
    assert sentence({"kind": "hung", "job_name": "o", "reason": "rank 2 is silent"})


def test_a_sparkline_goes_from_low_to_high_and_leaves_out_what_is_no_number() -> None:
    assert plot.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == plot.BARS
    assert plot.sparkline([1, 1]) == "▁▁"
    assert plot.sparkline([math.nan, math.inf]) == plot.sparkline([]) == ""
    assert len(plot.sparkline(range(1000), width=20)) == 20
    assert plot.sparkline([0, 1], unicode=False).isascii()


@pytest.mark.parametrize("unicode", [True, False])
def test_a_falling_curve_starts_top_left_and_ends_bottom_right(unicode: bool) -> None:
    points = [(float(step), 100.0 - step) for step in range(100)]
    lines = plot.curve(points, width=20, height=5, title="loss", unicode=unicode)
    assert lines[0].strip() == "loss"
    body = [line.split("│" if unicode else "|")[1] for line in lines[1:6]]
    assert body[0][0] != " " and body[0].rstrip() == body[0][: len(body[0].rstrip())]
    assert len(body[0].rstrip()) < 6 and len(body[-1].rstrip()) == 20
    assert lines[1].startswith("100") and lines[5].strip().startswith("1")
    assert lines[-1].split() == ["0", "99"]
    assert all(line.isascii() for line in lines) or unicode


def test_a_curve_of_one_point_or_none() -> None:
    assert plot.curve([]) == plot.curve([(1, math.nan)]) == []
    assert plot.curve([(1.0, 2.0)])


@pytest.mark.parametrize("unicode", [True, False])
def test_several_curves_share_a_plot_and_are_named_where_they_end(unicode: bool) -> None:
    high = [(float(x), float(x)) for x in range(9)]
    named = {"high": high, "low": [(0.0, 1.0), (8.0, 1.0)], "also low": [(4.0, 0.5)], "none": []}
    lines = plot.curves(named, width=20, height=4, unicode=unicode)
    assert [line[24:].strip() for line in lines[:4]] == ["high", "", "", "low, also low"]
    assert lines[0].startswith("8 ") and lines[3].startswith("0 ")
    assert plot.curves({"none": []}) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2s"), (42, "42s"), (60, "1m"), (185, "3m 5s"), (7500, "2h 5m"), (90000, "1d 1h")],
)
def test_spans(seconds: float, text: str) -> None:
    assert moments.span(seconds) == text


def test_durations_and_moments_are_read() -> None:
    assert moments.duration("--timeout", "1h30m") == 5400
    assert moments.duration("--timeout", "90") == 90
    with pytest.raises(InvalidInput, match="--timeout: 'soon' is not a duration"):
        moments.duration("--timeout", "soon")
    assert moments.since("--since", "10m", now=1000.0) == "1970-01-01T00:06:40.000+00:00"
    assert moments.since("--since", "2026-01-01T00:00:00Z") == "2026-01-01T00:00:00Z"
