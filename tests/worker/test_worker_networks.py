"""What a job reaches: the network on wish, abstract sockets never."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_lab import Lab
from worker_room import TELL, in_room, member, said, whole

from windlass.engines.local import isolation


@whole
@pytest.mark.parametrize("level", [0, 1])
def test_a_job_without_network_reaches_the_server_and_nothing_else(lab: Lab, level: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        code = f"""
import socket, urllib.request, urllib.error
def reach(host, port):
    try:
        socket.create_connection((host, port), 2).close()
        return "reached"
    except OSError as err:
        return type(err).__name__
try:
    answer = urllib.request.urlopen(os.environ["WINDLASS_URL"] + "/api/v1/nothing").status
except urllib.error.HTTPError as err:
    answer = err.code
tell(server=answer, metadata=reach("169.254.169.254", 80), world=reach("192.0.2.1", 80),
     neighbour=reach("127.0.0.1", {other.getsockname()[1]}),
     links=[name for _, name in socket.if_nameindex()])
"""
        worker = lab.worker(TELL + code, **lab.isolated(level, "none")).start()
        assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    found = said(worker)
    assert isinstance(found["server"], int)
    assert [found[name] for name in ("metadata", "world", "neighbour")].count("reached") == 0
    assert found["links"] == ["lo"]


@whole
def test_two_ranks_without_network_meet_on_their_loopback(lab: Lab) -> None:
    code = """
import socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("127.0.0.1", port), reuse_port=True) as server:
        tell(met=server.accept()[0].recv(9).decode())
else:
    while True:
        try:
            caller = socket.create_connection(("127.0.0.1", port)); break
        except OSError: time.sleep(0.05)
    caller.sendall(b"hello"); caller.close()
"""
    lab.plane.framework = "pytorch"
    worker = lab.worker("", members=member(0, 2, code), **lab.isolated(1, "none")).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    assert said(worker)["met"] == "hello"


@whole
def test_an_abstract_socket_of_outside_is_out_of_reach(lab: Lab) -> None:
    outside = f"windlass-test-{lab.attempt_id}"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("\0" + outside)
        other.listen()
        code = (
            f"outside = {outside!r}\n"
            + """
import socket
def reach(name):
    try:
        with socket.socket(socket.AF_UNIX) as caller: caller.connect(name)
        return "reached"
    except OSError as err:
        return type(err).__name__
with socket.socket(socket.AF_UNIX) as own:
    own.bind("\\0windlass-test-own"); own.listen()
    tell(outside=reach("\\0" + outside), own=reach("\\0windlass-test-own"))
"""
        )
        worker = in_room(lab, code).start()
        assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    if lab.plane.wait_for("register")["isolation"]["abstract_sockets"] != "own":
        pytest.skip("this kernel cannot keep abstract sockets apart (before 6.12)")
    assert said(worker) == {"outside": "PermissionError", "own": "reached"}


SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def plain_lab(archive: Path) -> Iterator[Lab]:
    """A laboratory of an ordinary user, where the user can reach it."""
    if os.geteuid() != 0 or not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"needs root, to become somebody else, and {SYSTEM_PYTHON}")
    if isolation.bubblewrap() is None:
        pytest.skip("bubblewrap is not installed (apt install bubblewrap)")
    with tempfile.TemporaryDirectory(prefix="windlass-plain-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        copy = Path(shutil.copy(archive, folder / "worker.pyz"))
        copy.chmod(0o644)
        (folder / "lab").mkdir()
        made = Lab(folder / "lab", copy)
        yield made
        made.close()


def test_an_ordinary_user_can_take_the_network_from_a_job(plain_lab: Lab) -> None:
    """Level 0, by user namespaces alone; and what it reports is what it is."""
    code = """
import socket
tell(uid=os.getuid(), links=[name for _, name in socket.if_nameindex()],
     capabilities=[line.split()[1] for line in open("/proc/self/status") if "CapEff" in line])
"""
    worker = plain_lab.worker([SYSTEM_PYTHON, "-c", TELL + code], **plain_lab.isolated(0, "none"))
    for path in [plain_lab.folder, *plain_lab.folder.rglob("*")]:
        os.chown(path, 65534, 65534)
    worker.process = subprocess.Popen(
        [SYSTEM_PYTHON, "-I", "-S", str(worker.archive), "run", str(worker.directory)],
        user=65534, group=65534, extra_groups=[], cwd="/",
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    record = worker.end()
    if record["outcome"] == "refused" and not _user_namespaces():
        pytest.skip(f"user namespaces are off here: {record['reason']}")
    assert record["outcome"] == "succeeded", (record, worker.logs("worker-0-0.err"))
    assert said(worker) == {"uid": 65534, "links": ["lo"], "capabilities": ["0" * 16]}
    told = plain_lab.plane.wait_for("register")["isolation"]
    assert (told["level"], told["network"]) == (0, "none") and "uid" not in told


def _user_namespaces() -> bool:
    words = [str(isolation.bubblewrap()), "--unshare-net", "--dev-bind", "/", "/", "true"]
    return subprocess.run(words, user=65534, cwd="/", check=False).returncode == 0
