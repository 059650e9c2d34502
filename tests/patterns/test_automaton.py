"""Patterns looked for in a text that comes in pieces: found where `re` finds them, in time."""

from __future__ import annotations

import random
import re

import pytest

from windlass.patterns import automaton
from windlass.patterns.automaton import Automaton

TEXTS = [
    "", "a", "CUDA error: out of memory\n", "ok\nRuntimeError: NCCL error\nbye", "größe 模型\r\n",
    "x aaa\nab", "foo_bar foo-bar", "exit 137\n", "\n\n", "CUDACUDA error",
]  # fmt: skip
PATTERNS = [
    r"CUDA error", r"(?i)cuda ERROR", r"^ok$", r"^Run.*NCCL", r"bye$", r"\bbar\b", r"\Bbar",
    r"exit (1[0-9]{2}|9)", r"[^a-z\s]+:", r"", r"a*", r"error: (out|in) of", r"größe\s+模型",
    r"ok\nRun", r"(foo|foo_)bar", r"\w+Error: \w+", r"(?x) a a a  # three", r"^$", r"a{2,3}\n",
]  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
def test_it_is_found_where_re_finds_it_however_the_text_is_cut(text: str) -> None:
    ours, theirs = Automaton(text), re.compile(text, re.MULTILINE)
    for whole in TEXTS:
        wanted = theirs.search(whole) is not None
        assert ours.search(whole) == wanted, whole
        for cut in range(len(whole)):
            state = ours.after(ours.after(ours.start, whole[:cut]), whole[cut:])
            assert ours.end(state) == wanted, (whole, cut)


def test_random_patterns_are_found_where_re_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while all that is known is forgotten every few letters."""
    dice = random.Random(11)
    parts = ["a", "b", ".", "[ab]", "[^a]", "c", "(?:a|b)", "(ab|c)", r"\w", r"\b", "^", "$"]
    ends = ["", "", "", "*", "+", "?", "*?", "{1,2}"]
    for most in (automaton.MOST_KEPT, 3):
        monkeypatch.setattr(automaton, "MOST_KEPT", most)
        for _ in range(300):
            chosen = [dice.choice(parts) for _ in range(dice.randint(1, 6))]
            text = "".join(
                part + ("" if part in (r"\b", "^", "$") else dice.choice(ends)) for part in chosen
            )
            ours, theirs = Automaton(text), re.compile(text, re.MULTILINE)
            for _ in range(5):
                whole = "".join(dice.choice("abc \n") for _ in range(dice.randint(0, 12)))
                assert ours.search(whole) == bool(theirs.search(whole)), (text, whole)


@pytest.mark.parametrize("text", [r"(a+)+$", r"(a|a)*b", r"a*a*a*a*a*a*b", r"(.*)*=", r"(x+x+)+y"])
def test_a_pattern_for_which_re_takes_for_ever_ends(text: str) -> None:
    found = Automaton(text)
    for letter in "ax":
        assert found.search(letter * 100_000 + "!") is False


def test_what_is_kept_of_a_pattern_is_bounded() -> None:
    """Here each of 2^12 sets of steps is another state."""
    found = Automaton("(a|b)*a(a|b){12}c")
    dice = random.Random(3)
    text = "".join(dice.choice("ab") for _ in range(60_000))
    assert found.search(text) is False
    assert sum(map(len, found._states.values())) <= automaton.MOST_KEPT
    assert found.search(text + "a" + "b" * 12 + "c")
