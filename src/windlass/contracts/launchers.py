"""Flags by which a launcher is told where it stands, which here the gang says.

torchrun reads the same as `PET_…` variables, and a flag wins over a variable: with `--standalone`
each member of a gang would be a gang of its own; with `--nnodes 2` on one member it waits for a
second one for ever. So such flags are found, and left out or refused.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from windlass.contracts.pytorch import is_launcher, is_node_launcher

_SET_BY_US = frozenset(
    "nnodes nproc-per-node node-rank master-addr master-port rdzv-backend rdzv-endpoint rdzv-id"
    " rdzv-conf local-addr standalone".split()
)
_NO_VALUE = frozenset("standalone no-python run-path use-env module monitor signals".split())
_OF_NODES = {"accelerate": ("num-machines",), "deepspeed": ("num-nodes",)}
_ANY_NUMBER = ("gpu", "auto")


class Flag(NamedTuple):
    """One flag with its value, as it was typed and as it is meant."""

    name: str
    value: str
    words: Tuple[str, ...]

    @property
    def typed(self) -> str:
        return self.words[0]

    @property
    def shown(self) -> str:
        return " ".join(self.words)


class Command(NamedTuple):
    """torchrun without the flags that the gang's own word replaces."""

    words: Tuple[str, ...]
    taken: Tuple[Flag, ...] = ()

    @property
    def nproc(self) -> Optional[int]:
        """The ranks of a member that the flags ask for, where they say a number."""
        for flag in self.taken:
            if flag.name == "nproc-per-node":
                return _count(flag.value)
        return None


def taken(words: Sequence[str]) -> Command:
    """Any command; one that is not torchrun (as such or as a module) stays as it is."""
    if not is_launcher(words):
        return Command(tuple(words))
    start = 1
    if words[0].rsplit("/", 1)[-1] != "torchrun":
        start = list(words).index("-m") + 2
    kept, found = list(words[:start]), []
    at = start
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--"):
        flag = _flag(words, at)
        if flag.typed.startswith("--") and flag.name in _SET_BY_US:
            found.append(flag)
        else:
            kept += flag.words
        at += len(flag.words)
    return Command((*kept, *words[at:]), tuple(found))


def unclear(flag: Flag) -> bool:
    """A number of ranks that only the node could tell."""
    return (
        flag.name == "nproc-per-node"
        and flag.value not in _ANY_NUMBER
        and _count(flag.value) is None
    )


def nodes(words: Sequence[str]) -> Optional[Flag]:
    """The flag by which a launcher asks for more nodes than the one that it stands on."""
    wanted: Tuple[str, ...] = ("nnodes",) if is_launcher(words) else ()
    if is_node_launcher(words):
        wanted = _OF_NODES[words[0].rsplit("/", 1)[-1]]
    for at, word in enumerate(words):
        if word.endswith(".py"):
            return None
        if wanted and word.startswith("--"):
            flag = _flag(words, at)
            if flag.name in wanted and flag.value not in ("1", "1:1"):
                return flag
    return None


def problems(members: int, commands: Sequence[Sequence[str]]) -> List[str]:
    """Why these commands cannot run as they stand, in a gang of so many members."""
    found = []
    for words in dict.fromkeys(tuple(each) for each in commands):
        flags = [each for each in taken(words).taken if each.name != "nproc-per-node"]
        more = nodes(words)
        if members > 1 and flags:
            shown = ", ".join(each.shown for each in flags)
            found.append(
                "%s: %s would win over what its gang tells it, and it would wait for ever: leave"
                " it out" % (words[0], shown)
            )
        elif members == 1 and more is not None:
            found.append(
                "%s: %s, but this job has one member, and it would wait for ever for the others:"
                " ask for the members (--workers N) and leave the flag out"
                % (words[0], more.shown)
            )
    return found


def _flag(words: Sequence[str], at: int) -> Flag:
    word = words[at]
    name, equals, value = word.lstrip("-").partition("=")
    name = name.replace("_", "-")
    length = 1 if equals or name in _NO_VALUE else 2
    if length == 2:
        value = words[at + 1] if at + 1 < len(words) else ""
    return Flag(name, value, tuple(words[at : at + length]))


def _count(text: str) -> Optional[int]:
    return (int(text) or None) if text.isdecimal() and 1 <= len(text) <= 4 else None
