"""What people write to choose runs, `metrics.loss < 0.3 and params.lr = 0.1`, as clauses.

    filter  = clause { "and" clause }
    clause  = [ kind "." ] key operator value
    key     = letters, digits, _ . - / , or anything in "…" or `…`
    value   = number | word | '…' | "…" | ( value, … )

Words of the language may be written in capitals, and text in quotes, as MLflow wants it. What a
kind, a key and a value may be is for the caller to say; here is only how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from windlass.core.errors import InvalidInput

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "like", "ilike", "in", "not in")
MAX_CLAUSES = 32
MAX_VALUES = 1000
"""In one list: a database takes some ten thousand in a statement."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'[^']*'|"[^"]*"|`[^`]*`)
    | (?P<number>[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?![^\s'"`=!<>(),]))
    | (?P<word>[^\s'"`=!<>(),]+)
    | (?P<sign>!=|<=|>=|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Value:
    text: str
    quoted: bool = False

    @property
    def number(self) -> float | None:
        """The number it says, if it says one and was not quoted."""
        if self.quoted:
            return None
        try:
            return float(self.text)
        except ValueError:
            return None


@dataclass(frozen=True)
class Clause:
    kind: str
    """What stands before the first dot, or nothing."""
    key: str
    operator: str
    values: tuple[Value, ...]
    """One; several after `in`; none after `is null`."""

    @property
    def value(self) -> Value:
        return self.values[0]


@dataclass(frozen=True)
class _Token:
    sort: str
    text: str
    at: int


def parse(text: str, *, null: bool = False) -> list[Clause]:
    """The clauses, all of which must hold; none for an empty text. Raises InvalidInput, which
    says where. `null`: `is null` and `is not null` are operators too, without a value."""
    tokens = list(_tokens(text))
    clauses: list[Clause] = []
    if not tokens:
        return clauses
    rest = _Rest(text, tokens, null)
    while True:
        clauses.append(rest.clause())
        if len(clauses) > MAX_CLAUSES:
            raise InvalidInput(f"filter: more than {MAX_CLAUSES} conditions")
        if rest.over:
            return clauses
        rest.word("and")


def split_key(text: str) -> tuple[str, str]:
    """`metrics.val/acc` is (metrics, val/acc); what has no dot has no kind. The key may stand in
    quotes."""
    kind, dot, key = text.partition(".")
    if not dot or kind[:1] in "\"`'":
        kind, key = "", text
    if len(key) > 1 and key[0] == key[-1] and key[0] in '"`':
        key = key[1:-1]
    return kind, key


class _Rest:
    """The tokens that are still to be read."""

    def __init__(self, text: str, tokens: list[_Token], null: bool = False) -> None:
        self._text = text
        self._null = null
        self._tokens = tokens
        self._at = 0

    @property
    def over(self) -> bool:
        return self._at == len(self._tokens)

    def clause(self) -> Clause:
        kind, key = self._name()
        operator = self._operator()
        values: tuple[Value, ...] = ()
        if operator in ("is null", "is not null"):
            pass
        elif operator in ("in", "not in"):
            values = self._list()
        else:
            values = (self._value(),)
        return Clause(kind, key, operator, values)

    def word(self, wanted: str) -> None:
        token = self._next(wanted)
        if token.sort != "word" or token.text.lower() != wanted:
            self._wrong(wanted, token)

    def _name(self) -> tuple[str, str]:
        token = self._next("a name such as metrics.loss")
        if token.sort == "text" and token.text[0] != "'":
            return "", token.text[1:-1]
        if token.sort != "word":
            self._wrong("a name such as metrics.loss", token)
        if token.text.endswith(".") and not self.over:  # metrics."a key with blanks"
            quoted = self._next("a key")
            if quoted.sort != "text" or quoted.text[0] == "'":
                self._wrong('a key, in "…" or `…`', quoted)
            return token.text[:-1], quoted.text[1:-1]
        return split_key(token.text)

    def _operator(self) -> str:
        wanted = f"one of {' '.join(OPERATORS)}"
        token = self._next(wanted)
        found = token.text.lower()
        if found == "not":
            self.word("in")
            return "not in"
        if found == "is" and self._null:
            following = self._next("null")
            if following.text.lower() == "not":
                self.word("null")
                return "is not null"
            if following.text.lower() != "null":
                self._wrong("null", following)
            return "is null"
        if found not in OPERATORS or token.sort == "text":
            self._wrong(wanted, token)
        return found

    def _value(self) -> Value:
        token = self._next("a value")
        if token.sort == "sign":
            self._wrong("a value", token)
        if token.sort == "text":
            return Value(token.text[1:-1], quoted=True)
        return Value(token.text)

    def _list(self) -> tuple[Value, ...]:
        found: list[Value] = []
        closing = "("
        while closing != ")":
            wanted = "(" if not found else ", or )"
            token = self._next(wanted)
            closing = token.text if token.sort == "sign" else ""
            if closing not in (("(",) if not found else (",", ")")):
                self._wrong(wanted, token)
            if closing != ")":
                found.append(self._value())
                if len(found) > MAX_VALUES:
                    raise InvalidInput(f"filter: more than {MAX_VALUES} values in a list")
        return tuple(found)

    def _next(self, wanted: str) -> _Token:
        if self.over:
            raise InvalidInput(
                f"filter: {wanted} is missing at the end",
                hint="such as: metrics.loss < 0.3 and params.lr = 0.1",
            )
        self._at += 1
        return self._tokens[self._at - 1]

    def _wrong(self, wanted: str, token: _Token) -> NoReturn:
        raise InvalidInput(
            f"filter: at {token.at + 1}: {wanted} (found {token.text!r})",
            hint="such as: metrics.loss < 0.3 and params.lr = 0.1",
        )


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidInput(
                f"filter: at {at + 1}: not understood (found {text[at : at + 20]!r})"
            )
        sort = match.lastgroup or ""
        yield _Token(sort, match.group(sort), match.start(sort))
        at = match.end()
