"""A self-test on the real cluster: what an operator would otherwise learn from the first job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from windlass.engines.ray.cluster import Cluster, RayFailed
from windlass.engines.ray.offers import by_name

Finding = tuple[str, bool, str]

_SECONDS = 15.0
# On a node, with the worker's own Python: read what we wrote, write what we read, call the server.
_PROBE = """
import sys, urllib.request
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
"""


async def look_at(
    cluster: Cluster, attempts: Path, command: Sequence[str], url: str
) -> list[Finding]:
    try:
        versions = await cluster.ask("version", trying=True)
        nodes = (await cluster.look([]))["nodes"]
    except RayFailed as err:
        return [("cluster", False, str(err))]
    found = [("cluster", True, f"answers; Ray {versions['ray']}, Python {versions['python']}")]
    good = by_name(nodes)
    living = sum(1 for each in nodes if each["alive"])
    found.append(("nodes", bool(good), f"{len(good)} of {living} nodes have CPUs or GPUs"))
    told = await asyncio.gather(
        *(
            _on_a_node(cluster, attempts, command, url, name, each["id"])
            for name, each in list(good.items())[:4]
        )
    )
    for each in told:
        # what is well is said once, what is wrong for each node
        found += [finding for finding in each if not finding[1] or finding not in found]
    return found


async def _on_a_node(
    cluster: Cluster, attempts: Path, command: Sequence[str], url: str, name: str, node_id: str
) -> list[Finding]:
    folder = attempts.parent / f".check-{secrets.token_hex(6)}"
    word = secrets.token_hex(8)
    try:
        folder.mkdir(mode=0o700)
        (folder / "asked").write_text(word)
        try:
            code, said = await cluster.ask(
                "probe", node_id=node_id, seconds=_SECONDS, waits=3 * _SECONDS,
                command=[command[0], "-I", "-S", "-c", _PROBE, str(folder), url],
            )  # fmt: skip
        except RayFailed as err:
            return [("process", False, f"none could be started on {name}: {err}")]
        if code:
            return [("process", False, f"{command[0]} did not run on {name}: {said.strip()}")]
        told = dict(line.partition(" ")[::2] for line in said.splitlines())
        with contextlib.suppress(OSError):
            await asyncio.to_thread(lambda: list(folder.iterdir()))  # a network file system's news
        answered = folder / "answered"
        shared = told.get("files") == "ok" and answered.exists() and answered.read_text() == word
        found = [("process", True, f"{command[0]} runs on the nodes")]
        if shared and answered.stat().st_uid != os.geteuid():
            said = f"Ray runs as user {answered.stat().st_uid} on {name}, the server as another"
            found.append(("user", False, said))
        found.append((
            "files", shared,
            "the home is shared with the nodes" if shared
            else f"{folder.parent} is not shared with {name}: {told.get('files', 'no answer')}",
        ))  # fmt: skip
        if url:
            well = told.get("server") == "ok"
            found.append((
                "server", well,
                f"{url} is reached from the nodes" if well
                else f"{url} is not reached from {name}: {told.get('server', 'no answer')}",
            ))  # fmt: skip
        return found
    except OSError as err:
        return [("files", False, str(err))]
    finally:
        for each in ("asked", "answered"):
            (folder / each).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
