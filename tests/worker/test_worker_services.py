"""The worker's own services: Horovod's key-value store over real HTTP, and our remote shell."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worker_lab import Lab, until

from windlass.worker.services import agent, key_value
from windlass.worker.services.key_value import KeyValueStore
from windlass.worker.services.port import ServicePort

# -- the key-value store


@pytest.fixture
def store() -> Iterator[tuple[KeyValueStore, int]]:
    """A store of a scope `global` with two members, and its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    made = KeyValueStore({"global": 2})
    made.serve(listener.detach())
    yield made, port
    made.stop()


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_value_is_kept_to_the_byte_until_its_scope_is_left_by_all(
    store: tuple[KeyValueStore, int],
) -> None:
    port = store[1]
    value = bytes(range(256))
    assert ask(port, "GET", "/global/0") == (404, b"")
    assert ask(port, "PUT", "/global/0", value) == (200, b"")
    assert ask(port, "GET", "/global/0") == (200, value)
    assert ask(port, "PUT", "/global/0", b"newer") == (200, b"")
    assert ask(port, "DELETE", "/global/0") == (200, b"")
    assert ask(port, "DELETE", "/global/0") == (200, b""), "said twice, for an answer was lost"
    assert ask(port, "GET", "/global/0") == (200, b"newer"), "one member is still in the scope"
    assert ask(port, "DELETE", "/global/1") == (200, b"")
    assert ask(port, "GET", "/global/0") == (404, b"")


def test_the_same_members_may_meet_again(store: tuple[KeyValueStore, int]) -> None:
    for _ in range(2):
        assert ask(store[1], "GET", "/global/0")[0] == 404
        ask(store[1], "PUT", "/global/0", b"x")
        for member in ("0", "1"):
            ask(store[1], "DELETE", "/global/" + member)


def test_a_scope_that_nobody_announced_loses_just_the_key(
    store: tuple[KeyValueStore, int],
) -> None:
    for key in ("a", "b"):
        ask(store[1], "PUT", "/set_3/" + key, b"x")
    ask(store[1], "DELETE", "/set_3/a")
    assert [ask(store[1], "GET", "/set_3/" + key)[0] for key in ("a", "b")] == [404, 200]


@pytest.mark.parametrize("path", ["/", "/scope", "/scope/", "//key", "/a/b/c", "scope/key"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_bad_path_is_refused(store: tuple[KeyValueStore, int], method: str, path: str) -> None:
    assert ask(store[1], method, path, b"x" if method == "PUT" else None)[0] == 400


def test_no_more_is_taken_than_fits(
    store: tuple[KeyValueStore, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_value, "MAX_VALUE_BYTES", 10)
    monkeypatch.setattr(key_value, "MAX_TOTAL_BYTES", 15)
    assert ask(store[1], "PUT", "/s/a", b"x" * 11)[0] == 413
    assert ask(store[1], "PUT", "/s/a", b"x" * 10)[0] == 200
    assert ask(store[1], "PUT", "/s/b", b"x" * 10)[0] == 507
    assert ask(store[1], "PUT", "/s/a", b"y" * 10)[0] == 200, "in the place of the old one"
    ask(store[1], "DELETE", "/s/a")
    assert ask(store[1], "PUT", "/s/b", b"x" * 10)[0] == 200
    assert ask(store[1], "PUT", "/s/" + "k" * 2000, b"")[0] == 414


def test_a_store_that_was_stopped_listens_no_more(store: tuple[KeyValueStore, int]) -> None:
    store[0].stop()
    with pytest.raises(ConnectionError):
        ask(store[1], "GET", "/global/0")


def test_who_comes_before_the_service_is_answered_by_it() -> None:
    """The gang is whole for all at once, but one node is faster than the other: its ranks were
    refused, and with a node two seconds behind Horovod gave up."""
    port = ServicePort("127.0.0.1", None)
    made = KeyValueStore({})
    try:
        with socket.create_connection(("127.0.0.1", port.number), timeout=60) as early:
            early.sendall(b"GET /global/0 HTTP/1.0\r\n\r\n")
            made.serve(port.take())
            assert early.recv(100).startswith(b"HTTP/1.0 404")
    finally:
        made.stop()
        port.close()


def test_where_no_service_will_be_who_comes_is_refused() -> None:
    port = ServicePort("127.0.0.1", None)
    port.turn_away()
    with pytest.raises(ConnectionRefusedError):
        ask(port.number, "GET", "/global/0")
    port.close()


MEET = """
import http.client, os, time
own = os.environ
rank, size = int(own["HOROVOD_RANK"]), int(own["HOROVOD_SIZE"])
def ask(method, path, body=None):
    at = http.client.HTTPConnection(
        own["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(own["HOROVOD_GLOO_RENDEZVOUS_PORT"]), timeout=60)
    at.request(method, path, body)
    answer = at.getresponse()
    return answer.status, answer.read()
def meet(scope, me, count):
    # As Gloo does: tell the own address, wait for every other, leave.
    assert ask("PUT", "/%s/%d" % (scope, me), b"address of %d" % rank)[0] == 200
    found = []
    for each in range(count):
        status = 404
        while status == 404:
            status, value = ask("GET", "/%s/%d" % (scope, each))
            time.sleep(0.01)
        found.append(value.decode())
    ask("PUT", "/done_%s/%d" % (scope, me), b"")
    while not all(ask("GET", "/done_%s/%d" % (scope, each))[0] == 200 for each in range(count)):
        time.sleep(0.01)
    ask("DELETE", "/%s/%d" % (scope, me))
    return found
print(meet("global", rank, size))
print(meet("local_" + own["HOROVOD_HOSTNAME"],
           int(own["HOROVOD_LOCAL_RANK"]), int(own["HOROVOD_LOCAL_SIZE"])))
print(meet("cross_" + own["HOROVOD_LOCAL_RANK"],
           int(own["HOROVOD_CROSS_RANK"]), int(own["HOROVOD_CROSS_SIZE"])))
while ask("GET", "/global/%d" % rank)[0] != 404:
    time.sleep(0.01)  # cleared, once all have left
# The store goes with the node of rank 0, which therefore waits for the others.
if rank == 0:
    while not all(ask("GET", "/left/%d" % each)[0] == 200 for each in range(1, size)):
        time.sleep(0.01)
else:
    try:
        ask("PUT", "/left/%d" % rank, b"")
    except (OSError, http.client.HTTPException):
        pass
"""


def test_horovod_ranks_of_two_nodes_meet_where_their_environment_says(lab: Lab) -> None:
    lab.plane.framework = "horovod"
    lab.plane.nodes = 2
    one = lab.worker(MEET, node="n0", nproc=2).start()
    member = {"role": "worker", "index": 1, "nproc": 1, "command": [sys.executable, "-c", MEET]}
    two = lab.worker("", node="n1", members=[member]).start()
    assert one.end()["outcome"] == two.end()["outcome"] == "succeeded", one.words() + two.words()

    def met(*ranks: int) -> str:
        return str([f"address of {rank}" for rank in ranks])

    assert one.logs("worker-0-0.out").decode().splitlines() == [met(0, 1, 2), met(0, 1), met(0, 2)]
    assert one.logs("worker-0-1.out").decode().splitlines() == [met(0, 1, 2), met(0, 1), met(1)]
    assert two.logs("worker-1-0.out").decode().splitlines() == [met(0, 1, 2), met(2), met(0, 2)]


# -- the remote shell


Call = Callable[..., subprocess.CompletedProcess[str]]


class Shell:
    """An agent in its own process, and what a launcher would find beside its files."""

    def __init__(self, folder: Path) -> None:
        self.files = folder
        self.log = folder / "agent.log"
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        (folder / "agent.key").write_text("k" * 64)
        (folder / "agent-hosts.json").write_text(
            json.dumps({"worker-1": ["127.0.0.1", self.port]})
        )
        command = [sys.executable, "-I", "-S", agent.__file__, "serve", str(listener.fileno())]
        self.process = subprocess.Popen(
            [*command, "worker-1", str(folder), str(self.log)],
            pass_fds=[listener.fileno()],
            env={**os.environ, "OF_THE_MEMBER": "yes"},
        )
        listener.close()

    def caller(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", agent.__file__, "call", str(self.files), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: str) -> tuple[int, str, str]:
        with self.caller(*words) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.end()


def test_a_command_runs_in_the_member_and_its_output_and_status_come_back(shell: Shell) -> None:
    assert shell.call("worker-1", "echo $OF_THE_MEMBER;", "echo err >&2;", "exit 7") == (
        7,
        "yes\n",
        "err\n",
    )
    assert shell.call("-x", "-l", "ada", "worker-1", "kill -9 $$")[0] == 137
    status, out, _ = shell.call("worker-1", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert (status, len(out)) == (0, 3_000_000)

    def calls() -> list[str]:
        return [line for line in shell.log.read_text().splitlines() if " call " in line]

    until(lambda: len(calls()) == 6)  # three calls, and how each ended


def test_a_host_outside_the_gang_is_not_known(shell: Shell) -> None:
    status, _, err = shell.call("elsewhere", "true")
    assert status == 255 and "known: worker-1" in err


def test_without_the_key_nothing_is_run(shell: Shell, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    assert shell.call("worker-1", "true")[0] == 0
    (shell.files / "agent.key").write_text("z" * 64)
    status, _, err = shell.call("worker-1", f"touch {proof}")
    assert status == 255 and "key" in err and not proof.exists()
    until(lambda: "wrong key" in shell.log.read_text())


def test_a_proof_is_good_for_one_command_on_one_member_once(shell: Shell, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    key = b"k" * 64

    def try_with(make: Callable[[bytes, str], str]) -> bytes:
        with socket.create_connection(("127.0.0.1", shell.port), timeout=60) as connection:
            _, number = agent.receive(connection, 64)
            command = f"touch {ran}"
            asked = {"command": command, "proof": make(number, command)}
            agent.send(connection, b"R", json.dumps(asked).encode())
            return agent.receive(connection, 1 << 16)[0]

    assert (
        try_with(lambda number, command: agent.proof(key, b"0" * 32, "worker-1", command)) == b"D"
    )
    assert try_with(lambda number, command: agent.proof(key, number, "worker-2", command)) == b"D"
    assert try_with(lambda number, command: agent.proof(key, number, "worker-1", "true")) == b"D"
    assert not ran.exists()
    assert try_with(lambda number, command: agent.proof(key, number, "worker-1", command)) == b"X"
    assert ran.exists()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.0\r\n\r\n", b"R\x00\x00\x00\x02[]", b"\xff" * 99]
)
def test_a_stranger_cannot_upset_the_agent(shell: Shell, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shell.port), timeout=60) as connection:
        agent.receive(connection, 64)
        connection.sendall(said)
    assert shell.call("worker-1", "echo still here")[1] == "still here\n"


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_call_that_breaks_kills_its_command_and_all_below(shell: Shell) -> None:
    process = shell.caller(
        "worker-1", "setsid sleep 600 & trap '' TERM; echo $! $$; sleep 600; wait"
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate()
    until(lambda: not any(_alive(pid) for pid in pids))
    until(lambda: "was cut" in shell.log.read_text())
    assert shell.call("worker-1", "true")[0] == 0, "others may still call"


def test_an_agent_hears_what_came_to_another_of_its_threads(shell: Shell) -> None:
    """It waited for a call in one thread, the signal came to the other: it heard it at the next
    call, which never came. So it was with one that came just before the wait."""
    with shell.caller("worker-1", "echo up; sleep 600") as caller:
        assert caller.stdout is not None and caller.stdout.readline() == "up\n"
        pid = shell.process.pid
        [other] = [int(each) for each in os.listdir(f"/proc/{pid}/task") if int(each) != pid]
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
        assert shell.process.wait(60) == 0
        assert caller.wait(60) == 143


def test_an_agent_that_is_told_to_stop_passes_it_on(shell: Shell) -> None:
    results: list[tuple[int, str, str]] = []
    # Nothing that outlives it: a child that a shell forks just then may miss the signal.
    command = "trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    thread = threading.Thread(target=lambda: results.append(shell.call("worker-1", command)))
    thread.start()
    until(lambda: shell.log.exists() and "call 1 " in shell.log.read_text())
    until(lambda: _has_child(shell.process.pid))
    shell.end()
    thread.join(60)
    assert shell.process.returncode == 0
    assert results and results[0][0] in (3, 143)


def _has_child(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text()) or any(
        Path(each / "children").read_text() for each in Path(f"/proc/{pid}/task").iterdir()
    )


LAUNCH = """
import os, subprocess, sys
shell = os.environ["OMPI_MCA_plm_rsh_agent"]
hosts = [line.split()[0] for line in open(os.environ["OMPI_MCA_orte_default_hostfile"])]
assert hosts == ["localhost", "worker-1"], hosts
command = "echo $WINDLASS_ROLE_INDEX $K_MPI_JOB_ROLE; cat /proc/self/cgroup; exit 5"
told = subprocess.run([shell, "worker-1", command], stdout=subprocess.PIPE, text=True)
assert told.returncode == 5
sys.stdout.write(told.stdout)
"""


def test_what_the_launcher_starts_runs_inside_the_other_member(lab: Lab) -> None:
    """A gang of MPI without MPI: who launches is a script that calls its remote shell."""
    lab.plane.framework = "mpi"
    lab.plane.nodes = 2
    lab.plane.finish = {"worker": "first"}
    script = lab.folder / "launch"
    script.write_text(f"#!{sys.executable}\n{LAUNCH}")
    script.chmod(0o700)
    one = lab.worker([str(script)], node="n0").start()
    member = {"role": "worker", "index": 1, "nproc": 4, "command": ["not-run-here"]}
    two = lab.worker("", node="n1", members=[member], finish="first").start()
    assert one.end()["outcome"] == "succeeded", one.words() + one.logs("worker-0-0.err").decode()
    said = one.logs("worker-0-0.out").decode()
    assert said.startswith("1 worker\n")
    cgroup = lab.plane.wait_for("register")["isolation"]["cgroup"]
    if cgroup != "none":
        assert f"windlass-{lab.attempt_id}-n1/worker-1" in said
    lab.plane.order(kind="end", grace_ms=5000, reason="decided", outcome="succeeded")
    record = two.end()
    assert record["outcome"] == "succeeded" and not record["survivors"]
    assert [rank["ended_by"] for rank in record["ranks"]] == ["worker"]
    assert "call 1 of 127.0.0.1" in (two.directory / "debug" / "ranks" / "agent.log").read_text()
    key = (two.directory / "files" / "1" / "agent.key").read_text()
    assert key == (one.directory / "files" / "0" / "agent.key").read_text() and len(key) == 64
    assert "secret" not in key


def test_a_service_of_a_newer_release_is_refused_by_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.contracts.horovod import HorovodContract

    monkeypatch.setattr(HorovodContract, "services", lambda self, gang: ("of-tomorrow",))
    lab.plane.framework = "horovod"
    record = lab.worker("print(1)").start().end()
    assert record["outcome"] == "refused" and "of-tomorrow" in record["reason"]
