"""A self-test on the real cluster: what an operator would otherwise learn from the first job."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from windlass.engines.slurm.commands import Slurm, SlurmFailed
from windlass.engines.slurm.offers import usable
from windlass.engines.slurm.script import Ask

Finding = tuple[str, bool, str]

_SECONDS = 20
# On a node, with the worker's own Python: read what we wrote, write what we read, call the server.
_PROBE = """
import socket, sys, urllib.request
folder, url = sys.argv[1:]
try:
    word = open(folder + "/asked").read()
    open(folder + "/answered", "w").write(word)
    print("files ok")
except OSError as err:
    print("files", err)
try:
    if url:
        urllib.request.urlopen(url + "/api/v1/health", timeout=5).read()
        print("server ok")
except Exception as err:
    print("server", err)
print("host", socket.gethostname())
"""


async def look_at(
    slurm: Slurm, attempts: Path, command: Sequence[str], ask: Ask, url: str
) -> list[Finding]:
    found: list[Finding] = []
    try:
        nodes = [
            each for each in await slurm.nodes()
            if not ask.partition or ask.partition in each.get("Partitions", "").split(",")
        ]  # fmt: skip
    except SlurmFailed as err:
        hint = "is this a login node, and is SLURM_CONF right?"
        return [("controller", False, f"{err}; {hint}")]
    found.append(("controller", True, "answers"))
    good = [each["NodeName"] for each in nodes if usable(each)]
    where = f"partition {ask.partition}" if ask.partition else "the cluster"
    said = f"{len(good)} of {len(nodes)} nodes of {where} can be used"
    found.append(("nodes", bool(good), said))
    if good:
        found += await _on_a_node(slurm, attempts, command, ask, url)
    return found


async def _on_a_node(
    slurm: Slurm, attempts: Path, command: Sequence[str], ask: Ask, url: str
) -> list[Finding]:
    folder = attempts.parent / f".check-{secrets.token_hex(6)}"
    word = secrets.token_hex(8)
    options = [
        f"--{key}={getattr(ask, key)}"
        for key in ("partition", "account", "qos")
        if getattr(ask, key)
    ]
    try:
        folder.mkdir(mode=0o700)
        (folder / "asked").write_text(word)
        try:
            said = await slurm.run(
                "srun", "--job-name=wl-check", "--nodes=1", "--ntasks=1", "--quiet",
                f"--immediate={_SECONDS}", "--time=1", *options, *ask.options,
                command[0], "-I", "-S", "-c", _PROBE, str(folder), url,
                seconds=2 * _SECONDS,
            )  # fmt: skip
        except SlurmFailed as err:
            return [("process", False, f"none could be started on a node: {err}")]
        told = dict(line.partition(" ")[::2] for line in said.splitlines())
        answered = folder / "answered"
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_fresh, folder)
        shared = told.get("files") == "ok" and answered.exists() and answered.read_text() == word
        found = [("process", True, f"{command[0]} ran on {told.get('host', 'a node')}")]
        found.append((
            "files", shared,
            "the home is shared with the nodes" if shared
            else f"{folder.parent} is not shared with the nodes: {told.get('files', 'no answer')}",
        ))  # fmt: skip
        if url:
            well = told.get("server") == "ok"
            found.append((
                "server", well,
                f"{url} is reached from the nodes" if well
                else f"{url} is not reached from the nodes: {told.get('server', 'no answer')}",
            ))  # fmt: skip
        return found
    except OSError as err:
        return [("files", False, str(err))]
    finally:
        for name in ("asked", "answered"):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _fresh(folder: Path) -> None:
    """A look at the folder, so that a network file system shows what was just written."""
    list(folder.iterdir())
