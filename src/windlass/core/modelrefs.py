"""How models and versions are called: `NAME@ALIAS`, `NAME@3`, or `NAME` for the newest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from windlass.core.errors import InvalidInput

MAX_FILES = 20_000
MAX_NAME = 256


def name_problem(name: str) -> str:
    """What is wrong with a model's name; "" if nothing is."""
    if not name.strip() or len(name) > MAX_NAME:
        return f"a name of 1 to {MAX_NAME} characters"
    if name in (".", "..") or name != name.strip() or not name.isprintable():
        return "a name on one line, without space at its ends"
    if any(char in name for char in "/:@\\"):
        return "a name without / : @ and backslash"
    return ""


def alias_problem(alias: str) -> str:
    """What is wrong with an alias; "" if nothing is. Numbers and `latest` name versions by
    themselves."""
    if not re.fullmatch(r"[\w-]{1,255}", alias):
        return "letters, digits, _ and -, at most 255"
    if alias.lower() == "latest" or re.fullmatch(r"[vV]?[0-9]+", alias):
        return "not latest, and not a version's number"
    return ""


def parse_ref(ref: str) -> tuple[str, str]:
    """`NAME@ALIAS` as its two parts; the second is "" for the newest. Raises InvalidInput."""
    name, at, which = ref.rpartition("@")
    if not at:
        name, which = ref, ""
    problem = name_problem(name)
    if not problem and at and not which:
        problem = "an alias or a number after the @"
    if problem:
        raise InvalidInput(
            f"a model is NAME@ALIAS, NAME@3 or NAME: {problem} (found {ascii(ref)[:200]})"
        )
    return name, which


def digest_of(files: Iterable[tuple[str, str, int]]) -> str:
    """Of (path, digest, size) of each file: the SHA-256 of the list by path, as compact JSON.
    What two versions have in common is what is in them, not where it came from."""
    listed = sorted(files)
    text = json.dumps(listed, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
