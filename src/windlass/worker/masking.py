"""Secrets out of what ranks print: each value, in the forms it is met in, becomes `***`.

A stream is masked as it comes. What may be the beginning of a secret at the end of a piece waits
for the next one, so a secret that is split over two writes is found too; no more than the longest
form is ever held. Forms of a value: as it is, percent-encoded, as a JSON or Python literal, base64
at each of its three alignments, and each longer line of a value of several lines.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

STARS = b"***"
SHORTEST = 4
"""A shorter value is not masked: it would turn half of all output into stars."""
_OURS = frozenset(
    "kind node role outcome attempt_id boot_id ended_by host digest path".split()
)  # fmt: skip
SHORTEST_LINE = 8
"""Lines of a value of several lines that are masked by themselves."""


class Masker:
    """The forms of an attempt's secrets. Made once; `stream` gives what masks one pipe."""

    def __init__(self, values: Iterable[str]) -> None:
        forms: Set[bytes] = set()
        for value in values:
            forms |= forms_of(value)
        # A form that holds another is found through it as well: the spans are united.
        self.forms: List[bytes] = sorted(forms, key=len, reverse=True)

    def stream(self) -> Stream:
        return Stream(self.forms)

    def text(self, text: str) -> str:
        """A whole text, masked."""
        raw = text.encode("utf-8", "surrogatepass")
        if not any(form in raw for form in self.forms):
            return text
        stream = Stream(self.forms)
        masked = stream.feed(raw) + stream.end()
        return masked.decode("utf-8", "replace")

    def value(self, value: Any, names: bool = False) -> Any:
        """What is reported, with every text of the user's in it masked; `names`: keys too. The
        protocol's own words stay, whatever a secret looks like."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(str(name)) if names else name: each
                if name in _OURS and isinstance(each, str)
                else self.value(each, names=name == "values")
                for name, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        return value


class Stream:
    """Bytes in, masked bytes out, some of them later. For one thread."""

    def __init__(self, forms: List[bytes]) -> None:
        self._forms = forms
        self._held = b""
        self._covered = 0
        """So many bytes of what is held belong to a secret whose stars are out already."""

    def feed(self, data: bytes) -> bytes:
        """What of all so far can be told to be no part of a secret, or is one."""
        if self._held:
            data = self._held + data
        return self._masked(data, self._pending(data))

    def end(self) -> bytes:
        """What was held back: no more comes."""
        return self._masked(self._held, len(self._held))

    def _masked(self, data: bytes, cut: int) -> bytes:
        """`data[:cut]` masked; the rest is held."""
        spans = self._spans(data)
        if not spans and not self._covered:
            self._held = data[cut:]
            return data[:cut]
        out: List[bytes] = []
        at = self._covered  # what is covered has had its stars
        reach = at
        for start, stop in spans:
            if start >= cut:
                break
            if start > reach or (start == reach and not (reach == at and at)):
                out.append(data[at:start])
                out.append(STARS)
                at = stop
            at = reach = max(reach, stop, at)
        if at < cut:
            out.append(data[at:cut])
        self._held = data[cut:]
        self._covered = max(0, at - cut)
        return b"".join(out)

    def _spans(self, data: bytes) -> List[Tuple[int, int]]:
        """Where forms are, in order of their beginnings; they may overlap."""
        found: List[Tuple[int, int]] = []
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + 1)
        found.sort()
        return found

    def _pending(self, data: bytes) -> int:
        """Where the longest end of `data` begins that may be the beginning of a form."""
        size = len(data)
        first = size
        for form in self._forms:
            at = max(0, size - len(form) + 1)
            head = form[:1]
            while True:
                at = data.find(head, at, first)
                if at < 0:
                    break
                if form.startswith(data[at:]):
                    first = at
                    break
                at += 1
        return first


class MaskedText:
    """A text file that is written to, masked: for the worker's own stderr."""

    def __init__(self, file: Any, masker: Masker) -> None:
        self._file = file
        self._masker = masker

    def write(self, text: str) -> int:
        self._file.write(self._masker.text(text))
        return len(text)

    def flush(self) -> None:
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def masker_of(secrets: Optional[Mapping[str, str]]) -> Optional[Masker]:
    """None where there is nothing to mask: then nothing costs anything."""
    masker = Masker((secrets or {}).values())
    return masker if masker.forms else None


def forms_of(value: str) -> Set[bytes]:
    """How a value may be met in output; empty for one that is too short."""
    parts = [value]
    lines = value.splitlines()
    if len(lines) > 1:
        parts += [line for line in lines if len(line) >= SHORTEST_LINE]
        parts.append(value.replace("\r\n", "\n"))
        parts.append(value.strip())
    forms: Set[bytes] = set()
    for part in parts:
        if len(part) >= SHORTEST:
            forms |= _forms(part)
    return {form for form in forms if len(form) >= SHORTEST}


def _forms(part: str) -> Set[bytes]:
    import json
    from urllib.parse import quote, quote_plus

    raw = part.encode("utf-8", "surrogatepass")
    forms = {raw}
    for safe in ("", "/"):
        for quoted in (quote(raw, safe=safe), quote_plus(raw, safe=safe)):
            forms.add(quoted.encode())
            forms.add(_lower_escapes(quoted).encode())
    for literal in (json.dumps(part), json.dumps(part, ensure_ascii=False), repr(part)):
        forms.add(literal[1:-1].encode("utf-8", "surrogatepass"))
    forms.add(repr(raw)[2:-1].encode())
    return forms | _base64(raw)


def _lower_escapes(quoted: str) -> str:
    parts = quoted.split("%")
    return "%".join([parts[0], *(each[:2].lower() + each[2:] for each in parts[1:])])


def _base64(raw: bytes) -> Set[bytes]:
    """The characters that depend on the value alone, wherever in a larger text it stands."""
    import base64

    forms: Dict[bytes, None] = {}
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).rstrip(b"=")
        # The first characters also hold bits of what stands before, the last of what follows.
        begin = (before * 8 + 5) // 6
        end = (before + len(raw)) * 8 // 6
        stable = whole[begin:end]
        if len(stable) >= 2 * SHORTEST:
            forms[stable] = None
            forms[stable.replace(b"+", b"-").replace(b"/", b"_")] = None
    return set(forms)
