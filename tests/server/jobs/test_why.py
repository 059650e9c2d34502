"""Where a stuck rank stands: the frame that a person would look at."""

from __future__ import annotations

import pytest

from windlass.core.errors import InvalidInput
from windlass.server.jobs.stream import parse_cursor
from windlass.server.jobs.why import _starts, _where

PY_SPY = """process 7
Process 7: python3 stuck.py
Python v3.11.7

Thread 7 (idle): "MainThread"
    wait_for_data (stuck.py:7)
    <module> (stuck.py:12)
Thread 8 (idle): "Thread-1"
    run (threading.py:982)
"""
FAULTHANDLER = """Thread 0x00007f (most recent call first):
  File "threading.py", line 982 in run

Current thread 0x00007e (most recent call first):
  File "stuck.py", line 7 in wait_for_data
  File "stuck.py", line 12 in <module>
"""


@pytest.mark.parametrize(
    ("stack", "where"),
    [
        (PY_SPY, "wait_for_data (stuck.py:7)"),
        (FAULTHANDLER, 'File "stuck.py", line 7 in wait_for_data'),
        ("it could not be looked at", "it could not be looked at"),
        ("Thread 7 (idle)", "Thread 7 (idle)"),
        ("", ""),
    ],
)
def test_a_hang_is_told_by_the_innermost_frame_of_the_main_thread(stack, where):
    assert _where(stack) == where


@pytest.mark.parametrize("cursor", ["x", "1;x;", "-1", "9" * 30, "1;1;a=-1", "1;1;a", "9" * 5000])
def test_a_cursor_that_is_not_ours_is_refused(cursor):
    """It used to be found out only after the answer had begun: the stream broke instead."""
    with pytest.raises(InvalidInput):
        parse_cursor(cursor)


def test_a_cursor_says_where_events_and_streams_go_on():
    assert parse_cursor("3;1;worker-0-0.out=6,worker-1-0.err=2") == (
        3,
        1,
        {"worker-0-0.out": 6, "worker-1-0.err": 2},
    )
    assert parse_cursor(None) == (0, 0, {})


@pytest.mark.parametrize(
    ("in_seconds", "words"),
    [
        (-5, "when it starts is unknown: what it waits for runs longer than was thought"),
        (1, "when it starts is unknown: what it waits for runs longer than was thought"),
        (90, "it should start about 12:01 UTC, in 90 s"),
        (600, "it should start about 12:10 UTC, in 10 min"),
        (3 * 3600, "it should start about 15:00 UTC, in 3 h"),
        (13 * 3600, "it should start about 2026-03-02 01:00 UTC, in 13 h"),
        (10 * 86400, "it should start about 2026-03-11 12:00 UTC, in 10 days"),
    ],
)
def test_when_it_should_start_is_said_as_a_person_would(in_seconds, words):
    noon = 1_772_366_400_000
    assert _starts(noon + in_seconds * 1000, noon) == words
