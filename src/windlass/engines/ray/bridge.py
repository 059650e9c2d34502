"""Speaks to a Ray cluster for the server, in a process of its own: `python bridge.py ADDRESS`.

Run by path with a Python that has Ray, which the server's need not have; it imports nothing of
ours. It reads a question a line as JSON and answers each with a line, in any order:

    {"id": 1, "do": "look", "attempts": [...]}    →    {"id": 1, "answer": {...}}
                                                       {"id": 2, "failed": "words"}

It ends when its input does. Whatever it started in the cluster goes on: groups and actors are
detached, and found again by their names, `wl-ATTEMPT` and `wl-ATTEMPT-NODE`.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import ray
from ray.util.placement_group import get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

NAMESPACE = "windlass"
_NODE_ID = "ray.io/node-id"
_CONNECT_SECONDS = 10.0
_AT_ONCE = 4
_ON_NODES = ("end", "probe")
"""They start something on a node and may take long; nothing else waits for them."""

# Start the worker as nobody's child, and say its pid: quickly, or where there is no setsid (of
# util-linux) with the worker's own Python, whose start takes ten times as long.
_QUICK = ["setsid", "--fork", "sh", "-c", 'echo $$; exec "$@" >&2', "sh"]
_ORPHAN = """
import os, sys
pid = os.fork()
if pid:
    print(pid, flush=True)
    os._exit(0)
os.setsid()
os.dup2(2, 1)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Worker:
    """The actor of one node: it starts our worker, and leaves when that has ended.

    The worker is no child of ours: when its raylet dies Ray ends us and kills our children, and a
    worker that is killed leaves its ranks behind, which nobody would end on a lost node."""

    def __init__(self, attempt: str, folder: str, command: list[str], env: dict[str, str]) -> None:
        self._attempt, self._folder = attempt, folder
        for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            if os.environ.get(name):
                env[name] = os.environ[name]  # the devices that Ray gave us
        pid = self._start([*command, "run", folder], env)
        with open("/proc/sys/kernel/random/boot_id") as words:
            boot_id = words.read().strip()
        mark = {
            "boot_id": boot_id, "boot_seconds": 0.0, "pid": pid, "start_time": _start_time(pid)
        }  # fmt: skip
        self._say("spawn.json", json.dumps(mark))
        threading.Thread(target=self._mind, args=(pid,), daemon=True).start()

    def _start(self, command: list[str], env: dict[str, str]) -> int:
        log = os.open(
            os.path.join(self._folder, "worker.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            try:
                return self._orphan([*_QUICK, *command], env, log)
            except (OSError, subprocess.CalledProcessError):
                way = [command[0], "-I", "-S", "-c", _ORPHAN]
                return self._orphan([*way, *command], env, log)
        except (OSError, ValueError, subprocess.CalledProcessError) as err:
            os.write(log, f"{command[0]} cannot be started: {err}\n".encode())
            self._say("ray.exit", "")
            raise
        finally:
            os.close(log)

    def _orphan(self, command: list[str], env: dict[str, str], log: int) -> int:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            cwd=self._folder, env=env, start_new_session=True, check=True,
        )  # fmt: skip
        return int(done.stdout)

    def _mind(self, pid: int) -> None:
        """Wait for its end, say so, and leave; the last one takes the group away."""
        try:
            watched = select.poll()
            watched.register(os.pidfd_open(pid), select.POLLIN)
            watched.poll()
        except ProcessLookupError:
            pass  # it has ended
        self._say("ray.exit", "")
        try:
            ours = f"wl-{self._attempt}"
            others = [name for name in ray.util.list_named_actors() if name.startswith(ours + "-")]
            if len(others) <= 1:
                remove_placement_group(get_placement_group(ours))
        except Exception:
            pass  # the server takes away what is left
        os._exit(0)

    def _say(self, name: str, text: str) -> None:
        path = os.path.join(self._folder, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)


def _start_time(pid: int) -> int | None:
    """Of the process that has this pid now; None when it runs no more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def end_on_node(folder: str, command: list[str], env: dict[str, str], seconds: float) -> str:
    """On the node itself: kill the worker if it lives, and clean up after it. Empty, or why it
    could not be done."""
    with open("/proc/sys/kernel/random/boot_id") as words:
        boot_id = words.read().strip()
    ends = time.monotonic() + seconds
    for name in ("spawn.json", "worker.json"):
        try:
            with open(os.path.join(folder, name)) as file:
                told = json.load(file)
            pid, started = int(told["pid"]), int(told["start_time"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # nobody was started
        while told.get("boot_id") == boot_id and pid > 1 and _start_time(pid) == started:
            if time.monotonic() > ends:
                return f"process {pid} cannot be killed"
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError as err:
                return f"process {pid}: {err}"
            time.sleep(0.01)
    try:
        done = subprocess.run(
            [*command, "reap", folder],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            cwd="/", env=env, timeout=seconds, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as err:
        return f"clean-up: {err}"
    said = done.stderr.decode("utf-8", "replace").strip()[-300:]
    return "" if done.returncode == 0 else f"clean-up failed ({done.returncode}): {said}"


def run_on_node(command: list[str], seconds: float) -> list[Any]:
    """Any command, for the self-test: [exit code, what it printed]."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd="/", timeout=seconds,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as err:
        return [127, str(err)]
    return [done.returncode, done.stdout.decode("utf-8", "replace")]


# what may be asked


def look(attempts: list[str]) -> dict[str, Any]:
    """The cluster as it is now: nodes, our actors, and the state of these attempts' groups."""
    actors = [name for name in ray.util.list_named_actors() if name.startswith("wl-")]
    groups = {}
    for attempt in attempts:
        try:
            found = get_placement_group(f"wl-{attempt}")
        except ValueError:
            continue
        groups[attempt] = ray.util.placement_group_table(found)["state"]
    return {"actors": actors, "groups": groups, "nodes": nodes()}


def nodes() -> list[dict[str, Any]]:
    return [
        {
            "id": each["NodeID"], "name": each["NodeName"], "alive": each["Alive"],
            "address": each["NodeManagerAddress"], "host": each["NodeManagerHostname"],
            "resources": each["Resources"], "labels": each.get("Labels") or {},
        }
        for each in ray.nodes()
    ]  # fmt: skip


def launch(
    attempt: str, shares: list[dict[str, Any]], command: list[str], env: dict[str, str]
) -> None:
    """The group and its actors, those that are not there yet. Ray gives the group its room whole;
    until then the actors wait."""
    group = _group(attempt, shares)
    for index, share in enumerate(shares):
        bundle = dict(share["bundle"])
        options = {
            "name": f"wl-{attempt}-{share['node']}",
            "get_if_exists": True,
            "lifetime": "detached",
            "max_restarts": 0,
            "num_cpus": bundle.pop("CPU", 0),
            "num_gpus": bundle.pop("GPU", 0),
            "memory": bundle.pop("memory", 0) or None,
            "resources": bundle,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=index
            ),
        }
        _actor_class().options(**options).remote(attempt, share["folder"], command, env)


@cache
def _actor_class() -> Any:
    """Once: Ray sends the class to the cluster for each that is made of it."""
    return ray.remote(Worker)


def _group(attempt: str, shares: list[dict[str, Any]]) -> Any:
    """Made, or found: nearly always there is none, and to look first takes as long again."""
    name = f"wl-{attempt}"
    try:
        return placement_group(
            [share["bundle"] for share in shares],
            strategy="STRICT_SPREAD" if len(shares) > 1 else "PACK",
            name=name,
            lifetime="detached",
            bundle_label_selector=[{_NODE_ID: share["node_id"]} for share in shares],
        )
    except ray.exceptions.RaySystemError:
        return get_placement_group(name)


def kill(actor: str) -> None:
    """One that waits for room is taken away too."""
    try:
        ray.kill(ray.get_actor(actor, namespace=NAMESPACE), no_restart=True)
    except ValueError:
        pass  # it is gone


def end(node_id: str, folder: str, command: list[str], env: dict[str, str], seconds: float) -> str:
    return str(_on(node_id, end_on_node, seconds * 3, folder, command, env, seconds))


def remove(attempts: list[str]) -> None:
    """The attempts' groups, and what waits for them."""
    ours = {f"wl-{attempt}" for attempt in attempts}
    for name in ray.util.list_named_actors():
        if name[: len("wl-") + 32] in ours:
            kill(name)
    for group in ours:
        try:
            remove_placement_group(get_placement_group(group))
        except ValueError:
            pass


def probe(node_id: str, command: list[str], seconds: float) -> list[Any]:
    found: list[Any] = _on(node_id, run_on_node, seconds * 2, command, seconds)
    return found


def _on(node_id: str, call: Callable[..., Any], seconds: float, *arguments: Any) -> Any:
    """A call on a node, whatever else runs there: it asks for no CPU."""
    task = ray.remote(call).options(
        num_cpus=0,
        max_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    )
    asked = task.remote(*arguments)
    try:
        return ray.get(asked, timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        ray.cancel(asked, force=True)
        raise TimeoutError(f"nothing could be started there within {seconds:g} s") from None


def version() -> dict[str, str]:
    return {"ray": ray.__version__, "python": sys.version.split()[0]}


ASKED: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (look, launch, kill, end, remove, probe, version)
}


def connect(address: str) -> str:
    """Empty, or why there is no cluster for us. Ray tries for a minute before it says so."""
    if "bundle_label_selector" not in inspect.signature(placement_group).parameters:
        return f"Ray {ray.__version__} is too old: 2.50 or newer is needed"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as err:
        return f"nothing answers at {address}: {err}"
    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False
        )
    except Exception as err:
        words = " ".join(f"{err.__cause__ or err.__context__ or ''} {err}".split())
        if "InvalidAuthToken" in words:
            return "the cluster refuses us: token-file is missing or holds another cluster's token"
        return words[:500]
    return ""


def main(address: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is no answer
    turn = threading.Lock()

    def say(told: dict[str, Any]) -> None:
        with turn:
            out.write(json.dumps(told) + "\n")

    def work(asked: dict[str, Any]) -> None:
        number, what = asked.pop("id"), asked.pop("do")
        try:
            say({"id": number, "answer": ASKED[what](**asked)})
        except Exception as err:
            words = " ".join(str(err).split())[:500]
            say({"id": number, "failed": words or type(err).__name__})

    if wrong := connect(address):
        say({"id": 0, "failed": wrong})
        return
    say({"id": 0, "answer": version()})
    with ThreadPoolExecutor(_AT_ONCE) as quick, ThreadPoolExecutor(_AT_ONCE) as slow:
        for line in sys.stdin:
            asked = json.loads(line)
            (slow if asked["do"] in _ON_NODES else quick).submit(work, asked)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
