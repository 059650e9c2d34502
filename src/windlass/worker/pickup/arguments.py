"""Parameters in a command, and in the JSON and YAML files that it names.

    python train.py --lr 0.1 --layers=3 --amp conf/model.yaml optim.momentum=0.9

What looks like a password is left out. Of YAML the plain part is read: names, values, and what is
nested by its indentation; a file with more than that gives what was understood of it.
"""

from __future__ import annotations

import json
import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

    class Params(NamedTuple):
        source: str
        values: Dict[str, str]
else:
    from collections import namedtuple

    Params = namedtuple("Params", "source values")

MOST_PARAMS = 500
LONGEST_VALUE = 2000
LARGEST_FILE = 1 << 20
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_./-]{0,99}$")
_NEGATIVE = re.compile(r"^-\d*\.?\d+(?:[eE][-+]?\d+)?$")
_HIDDEN = frozenset("password passwd secret token credential credentials apikey".split())
_SETTINGS = (".json", ".yaml", ".yml")


def of_command(command: Sequence[str], folder: str) -> List[Params]:
    """The parameters of each source; the command's own last, since they are the stronger."""
    words = _own_words(command)
    values: Dict[str, str] = {}
    files: List[str] = []
    for name, value in _pairs(words):
        files += [each for each in value.split() if each.endswith(_SETTINGS) and _inside(each)]
        if name and not _is_hidden(name) and len(values) < MOST_PARAMS:
            values[name] = value[:LONGEST_VALUE]
    found = []
    for path in dict.fromkeys(files):
        content = _of_file(folder, path)
        if content:
            found.append(Params("config file %s" % path, content))
    if values:
        found.append(Params("argv", values))
    return found


def _own_words(command: Sequence[str]) -> List[str]:
    """What follows the script: what comes before is the launcher's."""
    for at, word in enumerate(command):
        if word.endswith((".py", ".sh")):
            return list(command[at + 1 :])
        if word == "-m" and at + 1 < len(command) and at > 0:
            return list(command[at + 2 :])
        if word == "-c" and at > 0:
            return list(command[at + 2 :])
    return list(command[1:])


def _pairs(words: Sequence[str]) -> Iterator[Tuple[str, str]]:
    """Name and value; a word by itself has no name."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            continue
        name, equals, value = word.partition("=")
        bare = name.lstrip("-+")
        if equals and _NAME.match(bare):
            yield bare, value
        elif word.startswith("-") and not _NEGATIVE.match(word) and _NAME.match(bare):
            values: List[str] = []
            # Several numbers of one kind are one list; a word behind a value stands alone.
            while at < len(words) and _is_value(words[at]):
                if values and (_kind(words[at]) == "text" or _kind(words[at]) != _kind(values[0])):
                    break
                values.append(words[at])
                at += 1
            yield bare, " ".join(values) if values else "true"
        else:
            yield "", word


def _is_value(word: str) -> bool:
    if word.startswith("-"):
        return bool(_NEGATIVE.match(word))
    return not re.match(r"^[+~]?[A-Za-z_][\w.]*=", word)


def _kind(word: str) -> str:
    if re.match(r"^-?\d+$", word):
        return "whole"
    try:
        float(word)
    except ValueError:
        return "text"
    return "fraction"


def _is_hidden(name: str) -> bool:
    words = re.split(r"[-_./]+", name.lower())
    return bool(_HIDDEN.intersection(words)) or ("api" in words and "key" in words)


def _inside(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split("/")


def _of_file(folder: str, path: str) -> Dict[str, str]:
    text = _read(folder, path)
    if text is None:
        return {}
    if path.endswith(".json"):
        try:
            pairs = list(_flat(json.loads(text), ""))
        except (ValueError, RecursionError):
            return {}
    else:
        pairs = list(plain_yaml(text))
    return {
        name[:250]: value[:LONGEST_VALUE]
        for name, value in pairs[:MOST_PARAMS]
        if not _is_hidden(name)
    }


def _read(folder: str, path: str) -> Optional[str]:
    """An ordinary, small file below the folder; no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened: List[int] = []
    try:
        opened.append(os.open(folder, flags | os.O_DIRECTORY))
        *parts, name = [part for part in path.split("/") if part not in ("", ".")]
        for part in parts:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(name, flags, dir_fd=opened[-1]))
        about = os.fstat(opened[-1])
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_FILE:
            return None
        return os.read(opened[-1], LARGEST_FILE).decode("utf-8")
    except (OSError, ValueError):
        return None
    finally:
        for each in opened:
            os.close(each)


def _flat(content: Any, before: str) -> Iterator[Tuple[str, str]]:
    if isinstance(content, dict):
        for name, value in content.items():
            inner = "%s.%s" % (before, name) if before else str(name)
            if isinstance(value, dict):
                yield from _flat(value, inner)
            else:
                yield inner, value if isinstance(value, str) else json.dumps(value)


def plain_yaml(text: str) -> Iterator[Tuple[str, str]]:
    """`name: value` with nesting by indentation; lists of plain values as one value."""
    path: List[Tuple[int, str]] = []
    items: List[str] = []
    deeper_than: Optional[int] = None

    def listed() -> Iterator[Tuple[str, str]]:
        if items and path:
            yield ".".join(name for _, name in path), "[%s]" % ", ".join(items)
        items.clear()

    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith(("#", "---", "...", "%")):
            continue
        indent = len(line) - len(line.lstrip())
        if deeper_than is not None and indent > deeper_than:
            continue  # below a list of things, or inside a text
        deeper_than = None
        if bare.startswith("- ") or bare == "-":
            item = bare[2:].strip()
            if re.match(r"^[\w.-]+:(\s|$)", item) or not item:
                deeper_than = indent
            else:
                items.append(_scalar(item))
            continue
        yield from listed()
        named = re.match(r"^(['\"]?)([\w./ -]+?)\1\s*:(?:\s+(.*))?$", bare)
        if named is None:
            continue
        while path and path[-1][0] >= indent:
            path.pop()
        value = _scalar(named[3] or "")
        if value in ("|", ">", "|-", ">-", "|+", ">+"):
            deeper_than = indent
        elif value:
            yield ".".join([*(name for _, name in path), named[2]]), value
        else:
            path.append((indent, named[2]))
    yield from listed()


def _scalar(text: str) -> str:
    text = text.strip()
    if text[:1] in "'\"" and text[:1]:
        end = text.find(text[0], 1)
        if end > 0:
            return text[1:end]
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
