"""Commands of other systems, made to be words that no shell needs to touch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.client.importers.base import Report
from windlass.contracts.pytorch import is_launcher

_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")
_SET_BY_US = {
    "nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "rdzv-backend",
    "rdzv-endpoint", "rdzv-id", "rdzv-conf", "local-addr", "standalone",
}  # fmt: skip
_NO_VALUE = {"standalone", "no-python", "run-path", "use-env", "module", "monitor", "signals"}
SHELLS = ("sh", "bash", "zsh", "dash", "ksh")


def fill(word: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """`$(NAME)` as Kubernetes fills it in, and the names it would not know."""
    missing: list[str] = []

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:  # $$
            return "$"
        if name not in known:
            missing.append(name)
            return found[0]
        return known[name]

    return _REFERENCE.sub(value, word), missing


@dataclass(frozen=True)
class Launch:
    """A command without what Windlass tells the launcher itself."""

    words: tuple[str, ...]
    torchrun: bool = False
    nproc: int | None = None


def launch(words: Sequence[str], where: str, report: Report) -> Launch:
    """torchrun's flags that say where it stands are left out: Windlass sets them (PET_…), and a
    flag would win over that."""
    if not is_launcher(words):
        return Launch(tuple(words))
    start = 1
    if words[0].rsplit("/", 1)[-1] != "torchrun":
        start = list(words).index("-m") + 2
    kept, nproc = list(words[:start]), None
    at = start
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--"):
        word = words[at]
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        length = 1 if equals or name in _NO_VALUE else 2
        if length == 2:
            value = words[at + 1] if at + 1 < len(words) else ""
        if not word.startswith("--") or name not in _SET_BY_US:
            kept += words[at : at + length]
        elif name == "nproc-per-node" and value.isdecimal() and 1 <= len(value) <= 4:
            nproc = int(value) or None
            report.mapped(where, word, f"nproc: {value}")
        elif name == "nproc-per-node" and value not in ("gpu", "auto"):
            report.by_hand(where, f"--{name} {value}", "say how many as `nproc` of the role")
        else:
            shown = " ".join(words[at : at + length])
            report.dropped(where, shown, "Windlass tells torchrun where it stands")
        at += length
    return Launch(tuple([*kept, *words[at:]]), True, nproc)


def look_at(words: Sequence[str], where: str, report: Report) -> None:
    """Notes on what in a command will mean something else here."""
    if words and words[0].rsplit("/", 1)[-1] in SHELLS:
        if any("torchrun" in word or "torch.distributed" in word for word in words):
            report.by_hand(
                where,
                "torchrun in a shell",
                "Windlass tells torchrun where it stands when it is the command itself: "
                "run: torchrun …",
            )
    for word in words:
        if word.startswith("/") and word.endswith((".py", ".sh")):
            report.by_hand(
                where,
                word,
                "a path inside the image: make it one below the code's folder (code.dir)",
            )
        elif word.startswith("/etc/mpi/"):
            report.by_hand(
                where,
                word,
                "a file the operator wrote: $WINDLASS_HOSTFILE is ours, set for mpirun",
            )
