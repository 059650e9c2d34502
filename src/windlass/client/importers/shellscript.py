"""A batch script, read without running it: which lines set variables, which start the program.

Not a shell: it knows comments, quotes, continued lines, assignments and the first command of a
line. What it cannot follow (loops, conditions, here-documents) it names, so that a person looks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from windlass.core.errors import InvalidInput

SETUP = frozenset(
    "module ml source . conda mamba micromamba cd echo set mkdir nvidia-smi hostname date ulimit"
    " pip which sleep scontrol squeue sinfo true : trap unset umask printf cat rm cp mv ls pwd"
    " deactivate eval export free df env printenv wait exit shopt [ [[ test read rsync tar".split()
)
OPENING = frozenset("if for while until case select".split())
CLOSING = frozenset("fi done esac".split())
KEYWORDS = OPENING | CLOSING | frozenset("then do else elif { } function".split())
_SUBSTITUTED = re.compile(r"\$\(\([^()]*\)\)|\$\([^()]*\)|`[^`]*`")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_EXPANDS = re.compile(r"\$(?:\{[^}]*\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-])")
_EMPTY = re.compile(r"\$(?:\{(!?\w+|[@*#])(?:\[([^]]*)\])?([^}]*)\}|([A-Za-z_]\w*|[0-9@*]))")
ALWAYS = frozenset("HOME PATH USER PWD TMPDIR HOSTNAME SHELL RANDOM LD_LIBRARY_PATH".split())
_HERE = re.compile(r"<<-?\s*['\"]?([A-Za-z_][A-Za-z0-9_]*)")
_JOINS = frozenset(("&&", "||", ";"))
_OPERATOR = re.compile(r"[();<>|&]+")


@dataclass(frozen=True)
class Line:
    """One command of a script, its assignments (`A=1 python x`) apart."""

    number: int
    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    exported: bool = False
    rest: str = ""
    """What an operator of the shell cut off: a pipe, a redirection, a second command."""
    nested: bool = False
    """Inside a loop or a condition."""

    @property
    def program(self) -> str:
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""

    @property
    def starts_something(self) -> bool:
        return bool(self.words) and self.program not in SETUP | KEYWORDS


def lines(text: str) -> list[Line]:
    """The commands of a script. Raises InvalidInput with the line's number."""
    found: list[Line] = []
    depth = 0
    until = ""
    for number, raw in _joined(text):
        if until:
            until = "" if raw.strip() == until else until
            continue
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        here = _HERE.search(stripped)
        until = here[1] if here else ""
        for piece in _pieces(stripped):
            first = piece.split(None, 1)[0] if piece else ""
            depth = max(0, depth + (first in OPENING) - (first in CLOSING))
            for line in _read(number, piece, nested=depth > 0):
                if line.words or line.assigned:
                    found.append(line)
    return found


def put(word: str, known: Mapping[str, str]) -> str:
    """With the variables that are known filled in."""
    return _VARIABLE.sub(lambda use: known.get(use[1] or use[2], use[0]), word)


def needs_shell(words: Sequence[str]) -> bool:
    return any(_EXPANDS.search(word) or _SUBSTITUTED.search(word) for word in words)


def unset(text: str, known: Collection[str]) -> list[str]:
    """What a shell would put nothing for: variables that neither the script nor Windlass sets,
    the script's own arguments, elements of arrays. Not those with a default (`${1:-x}`)."""
    found: dict[str, None] = {}
    for use in _EMPTY.finditer(text):
        name, element, after = (use[1] or use[4]).lstrip("!"), use[2], use[3] or ""
        if after.startswith((":-", "-", ":=", "=", ":?", "?")):
            continue
        set_ = name in known or name in ALWAYS or name.startswith("WINDLASS_")
        if not set_ or (element is not None and unset(element, known)):
            found[use[0]] = None
    return list(found)


def for_shell(words: Sequence[str]) -> str:
    """Words as one line that a shell reads back, expanding what is left to expand."""

    def quoted(word: str) -> str:
        if not needs_shell([word]):
            return shlex.quote(word)
        return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'

    return " ".join(map(quoted, words))


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, those that end in a backslash together with the next."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        start = start or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            whole += line[:-1] + " "
            continue
        yield start, whole + line
        start, whole = 0, ""
    if whole:
        yield start, whole


def _pieces(text: str) -> list[str]:
    """`for x in 1 2; do a; done` as one command each, without the words of the shell before."""
    if text.split(None, 1)[0] not in KEYWORDS:
        return [text]
    pieces = [text] if re.search("['\"`]", text) else re.split(r"\s*;\s*", text)
    return [re.sub(r"^(?:(?:then|do|else)\s+)+", "", piece) for piece in pieces]


def _read(number: int, text: str, nested: bool) -> list[Line]:
    """The commands of one line: those that `&&`, `||` and `;` join are each one."""
    kept: list[str] = []

    def hide(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\x01{len(kept) - 1}\x01"

    def shown(word: str) -> str:
        return re.sub(r"\x01(\d+)\x01", lambda at: kept[int(at[1])], word)

    lexer = shlex.shlex(
        _SUBSTITUTED.sub(hide, text.replace("\x01", "")), posix=True, punctuation_chars=True
    )
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError as err:
        raise InvalidInput(f"line {number}: {err}: {text!r:.80}") from None
    found: list[Line] = []
    first = 0
    for at in (*(n for n, token in enumerate(tokens) if token in _JOINS), len(tokens)):
        if first < at:
            # What comes after `||` runs only when something has failed.
            doubtful = nested or (first > 0 and tokens[first - 1] == "||")
            found.append(_single(number, tokens[first:at], shown, doubtful))
        first = at + 1
    return found


def _single(number: int, tokens: list[str], shown: Callable[[str], str], nested: bool) -> Line:
    cut = next((at for at, token in enumerate(tokens) if _OPERATOR.fullmatch(token)), len(tokens))
    if (
        cut < len(tokens)
        and cut
        and tokens[cut] in (">", ">>", ">&")
        and tokens[cut - 1].isdigit()
    ):
        cut -= 1  # 2>
    rest = " ".join(shown(token) for token in tokens[cut:])
    words = [shown(token) for token in tokens[:cut]]
    exported = words[:1] == ["export"]
    if exported:
        words.pop(0)
    assigned = []
    while words and (one := _ASSIGNMENT.fullmatch(words[0])):
        assigned.append((one[1], one[2]))
        words.pop(0)
    if exported:
        words = []
    return Line(number, tuple(words), tuple(assigned), exported, rest, nested)
