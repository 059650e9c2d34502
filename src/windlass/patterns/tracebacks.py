"""The last words of a Python program: the traceback that says why it failed.

Three things stand between it and the end of a stderr:

    [rank1]: Traceback (most recent call last):     torch writes its rank before each line
    [rank1]:   File "train.py", line 3, in <module>
    [rank1]: ValueError: no such luck
    torch.distributed…ChildFailedError: train.py    a launcher fails because its child did: the
                                                    child's traceback is further up
    RuntimeError: it does not fit:                  a message of several lines ends where the
      asked for 3 GiB                               program's output ends, or goes on

Where the last one cannot be told from output that came after it, more is kept rather than less.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

_HEAD = "Traceback (most recent call last):"
_MOST_LINES = 60
_LAUNCHERS = re.compile(
    r"(?:[\w.]*\.)?(?:ChildFailedError|CalledProcessError|SpawnException|WorkerCrashedError)\b"
)
"""Errors of those who start others. What they say is that something else failed."""
_ROOT = re.compile(r"^\s*rank\s*:\s*(\d+) \(local_rank", re.MULTILINE)
_GOES_ON = re.compile(
    r"\[?[WEIFD]\d{4} \d\d:|\d{4}-\d\d-\d\d[ T]\d\d:|Exception ignored |"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|During handling of the above|"
    r"The above exception was|terminate called|srun:|\[[\w.-]+:\d+\] "
)
"""How lines begin that are not of a message: logs, what the interpreter says as it ends."""
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError)\b")


def last_traceback(text: str, most: int) -> Optional[str]:
    """The one that says why, at most so many characters; None when there is none."""
    lines = text.replace("\0", "?").splitlines()
    found = [each for at in range(len(lines)) for each in [_block(lines, at)] if each]
    if not found:
        return _syntax_error(lines, most)
    chosen = found[-1]
    if _LAUNCHERS.match(chosen[1]):
        own = [each for each in found if not _LAUNCHERS.match(each[1])]
        root = _ROOT.search("\n".join(lines))
        of_root = [each for each in own if root and _rank_of(each[2]) == root.group(1)]
        chosen = (of_root or own or [chosen])[-1]
    return _bounded(chosen[0], chosen[1], most)


def error_of(traceback: str) -> str:
    """The error alone, with its whole message, in one line."""
    lines = traceback.strip().splitlines()
    inside = [at for at, line in enumerate(lines) if line.lstrip().startswith('File "')]
    for at in range(inside[-1] + 1 if inside else 0, len(lines)):
        if lines[at] and not lines[at][0].isspace() and not lines[at].startswith(_HEAD):
            return " ".join(" ".join(lines[at:]).split())
    return lines[-1].strip() if lines else ""


def _block(lines: List[str], at: int) -> Optional[Tuple[List[str], str, str]]:
    """(frames, error with its message, prefix) of the traceback that begins in this line."""
    where = lines[at].find(_HEAD)
    if where < 0:
        return None
    prefix = lines[at][:where]
    inside = _without(lines[at + 1 :], prefix)
    frames = [_HEAD]
    base = None  # how far the error is indented: less than its frames
    for number, line in enumerate(inside):
        indent = len(line) - len(line.lstrip())
        if base is None and line.strip():
            base = max(0, indent - 2)
        if line.strip() and base is not None and indent <= base:
            message = _message(inside[number:], base)
            return frames, "\n".join(message), prefix
        frames.append(line[base or 0 :])
    return (frames, "", prefix) if len(frames) > 1 else None


def _without(lines: List[str], prefix: str) -> List[str]:
    """The lines that follow with the same prefix, without it; all of them where there is none
    (or where it stood before the first line alone, as `traceback : `)."""
    mark = prefix.rstrip()
    if not mark or not any(line.startswith(mark) for line in lines[:_MOST_LINES]):
        return lines
    found = []
    for line in lines:
        if line.startswith(prefix):
            found.append(line[len(prefix) :])
        elif line.startswith(mark):
            found.append(line[len(mark) :].lstrip(" "))
        elif not line.startswith("["):  # another rank's lines may stand between
            break
    return found


def _message(lines: List[str], base: int) -> List[str]:
    """The error's line and those that go on with it."""
    kept = [lines[0][base:]]
    for line in lines[1:_MOST_LINES]:
        if _HEAD in line or _GOES_ON.match(line.strip()):
            break
        kept.append(line[base:] if line[:base].isspace() else line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _rank_of(prefix: str) -> Optional[str]:
    found = re.search(r"\[(?:rank|default)?(\d+)\]", prefix)
    return found.group(1) if found else None


def _bounded(frames: List[str], error: str, most: int) -> str:
    """Of what is too long the frames go first, from the outermost; then the message's end."""
    error = error[: max(1, most - len(_HEAD) - 1)]
    room = most - len(error) - 1
    told = "\n".join(frames)
    if len(told) > room:
        told = told[-room:] if room > 0 else ""
    return "%s\n%s" % (told, error) if error and told else error or told


def _syntax_error(lines: List[str], most: int) -> Optional[str]:
    """A script that could not be read has no traceback: file and line, then the error."""
    for at in range(len(lines) - 1, -1, -1):
        if _SYNTAX.match(lines[at]):
            first = max(0, at - 3)
            return "\n".join(lines[first : at + 1])[-most:]
    return None
