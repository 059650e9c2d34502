"""A board's socket lies in a folder that user code may change: nothing else is reached by it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.server.boards.passing import SOCKET, Unanswered, _read, plug, target_of


def listening(folder: Path, name: str) -> socket.socket:
    """A socket there, however long the path is."""
    found = socket.socket(socket.AF_UNIX)
    held = os.open(folder, os.O_RDONLY)
    try:
        found.bind(f"/proc/self/fd/{held}/{name}")
    finally:
        os.close(held)
    found.listen()
    return found


def test_a_socket_is_reached_below_a_path_that_is_longer_than_an_address(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with listening(folder, SOCKET) as server:
        plugged = plug(folder)
        accepted, _ = server.accept()
        plugged.close()
        accepted.close()


def test_a_link_to_another_socket_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    with listening(outside, SOCKET):
        (inside / SOCKET).symlink_to(outside / SOCKET)
        with pytest.raises(Unanswered):
            plug(inside)
        (tmp_path / "link").symlink_to(outside)
        with pytest.raises(Unanswered):
            plug(tmp_path / "link")


@pytest.mark.parametrize("kind", ["nothing", "file", "pipe", "dead"])
def test_what_is_no_socket_that_listens_is_told_apart(tmp_path: Path, kind: str) -> None:
    path = tmp_path / SOCKET
    if kind == "file":
        path.write_text("")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dead":
        listening(tmp_path, SOCKET).close()
    with pytest.raises(Unanswered):
        plug(tmp_path)


def test_what_is_asked_is_passed_as_it_was_sent() -> None:
    scope = {"raw_path": b"/tb/r/s/data/a%0d%0ab%2F..", "query_string": b"run=a%20b"}
    assert target_of(scope, "r", "s") == b"/data/a%0d%0ab%2F..?run=a%20b"


@pytest.mark.parametrize(
    ("raw", "query"),
    [
        (b"/tb/r/s/a b", b""),
        (b"/tb/r/s/a\r\nX: y", b""),
        (b"/tb/r/s/a", b"x=\n"),
        (b"/tb/%72/s/a", b""),
        (b"/tb/r/s", b""),
    ],
)
def test_what_could_be_read_as_more_than_one_line_or_another_board_is_refused(
    raw: bytes, query: bytes
) -> None:
    with pytest.raises(InvalidInput):
        target_of({"raw_path": raw, "query_string": query}, "r", "s")


@pytest.mark.parametrize(
    "head",
    [
        "nothing",
        "HTTP/1.0 100 Continue",
        "HTTP/1.0 302 Found|Location: /",
        "HTTP/1.0 200 OK|Content-Length: 1|Content-Length: 2",
        "HTTP/1.0 200 OK|Content-Length: -1",
        "HTTP/1.0 200 OK|Transfer-Encoding: chunked",
        "HTTP/1.0 200 OK|Content-Type: a|Content-Type: b",
        "HTTP/1.0 200 OK| folded: x",
        "HTTP/1.0 200 OK|no colon",
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_no_answer(head: str) -> None:
    with pytest.raises(Unanswered):
        _read((head + "||").replace("|", "\r\n").encode())
