"""`why` of a file that was not sent."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.server.jobs import missing

ERROR = "FileNotFoundError: [Errno 2] No such file or directory: '%s'"
SENT: dict[str, Any] = {"bundle": "0" * 64}


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("../data/x.csv", {}, "../data/x.csv lies outside what was sent"),
        ("../data/x.csv", {"workdir": "mnist"}, ""),
        ("../data/x.csv", {"workdir": "mnist", "left_out": ["data/"]}, "--include data, or"),
        ("big.bin", {"left_out": ["big.bin"]}, "big.bin was left out when the code was sent"),
        ("data", {"left_out": ["data/x.bin"]}, "--include data/x.bin"),
        ("/home/ada/x.csv", {}, "only the code's folder was sent"),
        ("never.csv", {"left_out": ["never"]}, ""),
        ("/home/ada/x.csv", {"here": "/home/ada", "bundle": None}, ""),
    ],
)
def test_a_missing_file_is_explained_where_it_was_not_sent(
    path: str, code: dict[str, Any], words: str
) -> None:
    found = missing.sentence("Traceback …\n" + ERROR % path, {**SENT, **code})
    assert (words in found) if words else found == ""
    assert missing.sentence("ValueError: 3", SENT) == ""
