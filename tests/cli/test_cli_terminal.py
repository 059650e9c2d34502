"""What a terminal is sent: text and colours, whatever somebody wrote."""

from __future__ import annotations

import io
import sys

import pytest

from windlass.cli import output, terminal, top


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain Ünï 漢字 🚀\tx\r\n", "plain Ünï 漢字 🚀\tx\r\n"),
        ("\x1b[1;31mred\x1b[0m\x1b[m", "\x1b[1;31mred\x1b[0m\x1b[m"),
        ("\x1b[38;5;8mgrey", "\x1b[38;5;8mgrey"),
        ("\x1b[0;8mhidden", "hidden"),
        ("\r\x1b[K50%", "\r\x1b[K50%"),
        ("a\x1b[2Jb\x1b[1;1Hc\x1b[?1049hd\x1b[3Ae", "abcde"),
        ("\x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y\x1bPq\x9cz", "xyz"),
        ("\x1b]0;no end", "\\x1b]0;no end"),
        ("\x1b[3", "\\x1b[3"),
        ("\x9b2J", "\\x9b2J"),
        ("a\x00\x07\x7fb", "a\\x00\\x07\\x7fb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_what_is_let_through(text: str, left: str) -> None:
    assert terminal.harmless(text) == left


def test_an_order_in_two_pieces_is_none() -> None:
    order = "\x1b]52;c;aGk=\x07\x1b[2J\x1bc"
    for at in range(len(order)):
        shown = terminal.harmless(order[:at]) + terminal.harmless(order[at:])
        assert "\x1b" not in shown and "\x07" not in shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_everything_printed_is_guarded_but_a_pipe_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    terminal.guard()
    terminal.guard()
    print("a\x1b[2Jb")
    sys.stdout.writelines(["\x1bc", "d"])
    terminal.bare(sys.stdout).write("\x1b[2K")
    sys.stderr.write("\x1b[2J")
    assert out.getvalue() == "ab\n\\x1bcd\x1b[2K"
    assert err.getvalue() == "\x1b[2J"
    assert not hasattr(sys.stdout, "buffer")


def test_words_of_several_lines_are_made_safe_line_by_line() -> None:
    assert output.safe("a\n\x1b[2Jb\n") == "a\n\\x1b[2Jb\n"


def test_a_name_is_no_markup() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    console.print(top.frame("http://[red]x[/]", [], []))
    assert "[red]x[/]" in console.file.getvalue()  # type: ignore[attr-defined]
