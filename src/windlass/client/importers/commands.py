"""Commands of other systems, made to be words that no shell needs to touch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.client.importers.base import Report
from windlass.contracts import launchers
from windlass.contracts.pytorch import is_launcher

_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")
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
    found = launchers.taken(words)
    for flag in found.taken:
        if flag.name != "nproc-per-node":
            report.dropped(where, flag.shown, "Windlass tells torchrun where it stands")
        elif launchers.unclear(flag):
            report.by_hand(
                where, f"--{flag.name} {flag.value}", "say how many as `nproc` of the role"
            )
        elif found.nproc:
            report.mapped(where, flag.typed, f"nproc: {found.nproc}")
        else:
            report.dropped(where, flag.shown, "Windlass tells torchrun where it stands")
    return Launch(found.words, is_launcher(words), found.nproc)


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
