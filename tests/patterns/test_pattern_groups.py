"""Groups of other people's patterns: they hold what `re` finds, in bounded time."""

from __future__ import annotations

import random
import re

import pytest

from windlass.core.jobs import JobSpec
from windlass.core.patterns import MOST_STEPS, names_of
from windlass.patterns.groups import Pattern

LINES = [
    "", "a", "loss=0.25", "step 12 of 40: loss=0.5 lr=1e-3", "Epoch [3/10] Loss: 1.5E-3 acc 93%",
    "loss= loss=1 loss=2", "ab12cd", "x.y.z 1 2 3", "größe=3 模型=4", "aaa bbb", "LOSS=7", "_a1 b",
]  # fmt: skip
PATTERNS = [
    r"loss=(?P<loss>[0-9.]+)", r"step (?P<step>\d+).*?(?P<v>\d+\.\d+)", r"(?i)loss\W+(?P<l>\S+)",
    r"^(?P<a>\w+)", r"(?P<a>\w+)$", r"\b(?P<a>[^\W\d_]+)\b", r"(?P<a>a|ab|abc)(?P<b>.*)",
    r"(?P<a>(?:x\.)?y)", r"(?P<a>\d{2,3}|c)(?P<b>[^ ]?)", r"(?P<k>[a-z]+)=(?P<v>-?\d+(?:\.\d+)?)",
    r"(?P<a>a*)(?P<b>b?)", r"(?P<a>[^=]*)=(?P<b>.+?)(?: |$)", r"(?P<x>\B.)", r"(?:(?P<a>q)|l)oss",
    r"(?P<a>(?i:LO)ss)=", r"(?P<z>.{0,3}?)\d", r"(?x) loss = (?P<v> \d+ )  # spaced",
]  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_finds_what_re_finds(text: str) -> None:
    ours, theirs = Pattern(text), re.compile(text)
    assert names_of(text) == set(theirs.groupindex)
    for line in LINES:
        found = theirs.search(line)
        assert ours.search(line) == (found.groupdict() if found else {}), line


def test_random_patterns_find_what_re_finds() -> None:
    dice = random.Random(7)
    parts = ["a", "b", ".", "[ab]", "[^a]", "c", "(?:a|b)", "(?:ab|c)", r"\w"]
    ends = ["", "", "", "*", "+", "?", "*?", "+?", "{1,2}"]
    for _ in range(400):
        inner = "".join(dice.choice(parts) + dice.choice(ends) for _ in range(dice.randint(1, 4)))
        behind = "".join(dice.choice(parts) + dice.choice(ends) for _ in range(dice.randint(0, 2)))
        text = f"(?P<x>{inner}){behind}"
        ours, theirs = Pattern(text), re.compile(text)
        for _ in range(5):
            line = "".join(dice.choice("abc ") for _ in range(dice.randint(0, 9)))
            found = theirs.search(line)
            assert ours.search(line) == (found.groupdict() if found else {}), (text, line)


@pytest.mark.parametrize(
    "text", [r"(?P<x>(a+)+)b", r"(?P<x>(a|a)*)b", r"(?P<x>a*a*a*a*a*a*)b", r"(?P<x>(.*)*)=(\d+)"]
)
def test_a_pattern_for_which_re_takes_for_ever_ends(text: str) -> None:
    assert Pattern(text).search("a" * 8000) == {}


def test_of_a_line_that_is_too_long_for_a_pattern_the_beginning_is_looked_at() -> None:
    text = "x{400}|(?P<y>y)"
    assert Pattern(text).search(" " * 2000 + "y") == {"y": "y"}
    assert Pattern(text).search(" " * 8000 + "y") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"(?P<x>a)(?=b)", "lookahead"),
        (r"(?<!a)(?P<x>b)", "lookahead and lookbehind"),
        (r"(?P<x>a)(?P=x)", "a reference to a group"),
        (r"(?P<x>a)(?(x)b|c)", "a condition on a group"),
        (r"(?P<x>(?>a))", "an atomic group"),
        (r"(?P<x>a{1000})", f"where {MOST_STEPS} are the most"),
        (r"(?P<x>a)(?!)", "lookahead"),
        (r"(?P<x>a", "is no regular expression"),
    ],
)
def test_what_cannot_be_matched_so_is_refused_at_submit(text: str, words: str) -> None:
    for asked in ({"metrics": {"parse": [text]}}, {"retry": {"on": [f"log:{text}"]}}):
        with pytest.raises(ValueError, match=re.escape(words)):
            JobSpec.model_validate({"run": "x", **asked})


def test_a_pattern_for_metrics_names_one() -> None:
    with pytest.raises(ValueError, match="names no metric"):
        JobSpec.model_validate({"run": "x", "metrics": {"parse": [r"a=(\d+)"]}})


@pytest.mark.parametrize("text", [*PATTERNS, r"(?P<x>((ab){3}c){9})", r"(?P<x>(a|b|){7}?)"])
def test_what_is_accepted_has_no_more_steps_than_were_counted(text: str) -> None:
    names_of(text)
    assert len(Pattern(text)._steps) <= MOST_STEPS + 1
