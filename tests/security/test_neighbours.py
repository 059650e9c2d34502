"""R-S20, R-S21: a job attacks its neighbour and the server, from inside, on a server that two
people share. Everything is refused. What level 0 does not hold is shown too: it says so itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.engines.local import isolation
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow
ABLE = isolation.look()
needs_level_1 = pytest.mark.skipif(
    ABLE.level < 1, reason="isolation level 1: " + "; ".join(ABLE.missing or ("?",))
)
SECRET = "the-neighbours-secret"

VICTIM = f"""
import ctypes, os, socket, time
with open(os.path.join(os.environ["WINDLASS_OUTPUT_DIR"], "result"), "w") as file:
    file.write({SECRET!r})
with open("/dev/shm/victim", "w") as file:
    file.write({SECRET!r})
os.chmod("/dev/shm/victim", 0o666)
libc = ctypes.CDLL(None)
print("segment", libc.shmget(0x5EC12E7, 4096, 0o1666))
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0victim-socket")
listener.listen()
print("ready", flush=True)
while True:
    time.sleep(1)
"""

ATTACK = """
import ctypes, errno, json, os, signal, socket, sys, urllib.error, urllib.request
target = json.loads(sys.argv[1])
found = {}
libc = ctypes.CDLL(None, use_errno=True)

def attack(name):
    def run(work):
        try:
            got = work()
        except (OSError, urllib.error.URLError) as err:
            found[name] = "refused: %s" % (getattr(err, "code", None) or type(err).__name__)
        else:
            found[name] = "GOT IT: %r" % (got,) if got else "refused: nothing there"
    return run

def read(path):
    with open(path, "rb") as file:
        return file.read(200)

def write(path):
    with open(path, "ab") as file:
        return file.write(b"0") or True

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True

def connect(family, address):
    with socket.socket(family) as caller:
        caller.settimeout(3)
        caller.connect(address)
        return True

def call(method, path, body=None):
    request = urllib.request.Request(
        os.environ["WINDLASS_URL"] + "/api/v1" + path, method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["WINDLASS_TOKEN"],
                 "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status

def neighbours_environment():
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if target["secret"].encode() in read("/proc/%s/environ" % name):
                    return name
            except OSError:
                pass

def processes_of_others():
    return [name for name in os.listdir("/proc")
            if name.isdigit() and os.stat("/proc/" + name).st_uid not in (0, os.getuid())]

for each in target["files"]:
    attack("read " + each)(lambda: read(each))
for each in target["folders"]:
    attack("list " + each)(lambda: [n for n in os.listdir(each) if n not in target["way"]])
for each in target["plant"]:
    attack("plant in " + each)(lambda: os.symlink("/etc/shadow", each + "/planted") or True)
attack("environment of a neighbour")(neighbours_environment)
attack("processes of others")(processes_of_others)
attack("memory of the server")(lambda: read("/proc/%d/mem" % target["server"]))
attack("environment of process 1")(lambda: read("/proc/1/environ"))
attack("root of process 1")(lambda: os.listdir("/proc/1/root/etc"))
attack("ptrace of process 1")(lambda: checked(libc.ptrace(16, 1, 0, 0)))
attack("ptrace of the neighbour")(lambda: checked(libc.ptrace(16, target["rank"], 0, 0)))
for name in ("rank", "worker", "server"):
    attack("signal to the " + name)(lambda: os.kill(target[name], 0) or True)
attack("signal to the keeper of the room")(lambda: os.kill(1, signal.SIGKILL) or True)
attack("signal to its helper")(lambda: os.kill(2, signal.SIGKILL) or True)
attack("signal to the parent")(lambda: os.getppid() and (os.kill(os.getppid(), 9) or True))
attack("shared memory")(lambda: read("/dev/shm/victim"))
attack("segment")(lambda: checked(libc.shmget(0x5EC12E7, 4096, 0)))
attack("abstract socket")(lambda: connect(socket.AF_UNIX, "\\0victim-socket"))
attack("metadata address")(lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
attack("metadata address by version 6")(
    lambda: connect(socket.AF_INET6, ("::ffff:169.254.169.254", 80)))
for line in open("/proc/self/cgroup"):
    _, controllers, path = line.strip().split(":", 2)
    top = "/sys/fs/cgroup/" + (controllers or "unified")
    for folder in {top, top + path, top + os.path.dirname(path), *target["cgroups"]}:
        for name in ("cgroup.procs", "memory.limit_in_bytes", "memory.max", "pids.max",
                     "cgroup.kill", "devices.allow"):
            if os.path.exists(folder + "/" + name):
                attack("write %s/%s" % (folder, name))(lambda: write(folder + "/" + name))
attack("become root")(lambda: os.setuid(0) or True)
attack("become the neighbour")(lambda: os.setuid(target["uid"]) or True)
attack("make a device")(lambda: os.mknod("disk", 0o60600, os.makedev(8, 0)) or True)
attack("a user namespace")(lambda: checked(libc.unshare(0x10000000)))
attack("lower its oom score")(
    lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"))
attack("change the kernel")(lambda: write("/proc/sys/kernel/core_pattern"))
attack("log of the kernel")(lambda: os.open("/dev/kmsg", os.O_RDONLY))
attack("list jobs")(lambda: call("GET", "/jobs"))
attack("read the neighbour")(lambda: call("GET", "/jobs/" + target["job"]))
attack("stop the neighbour")(lambda: call("POST", "/jobs/%s/stop" % target["job"], {}))
attack("submit")(lambda: call("POST", "/jobs", {"spec": {"run": ["true"]}}))
attack("call as a worker")(lambda: call("GET", "/worker/orders?node=local&after=0&wait=0"))
attack("make a key")(lambda: call("POST", "/keys", {"user": "ada"}))
attack("nodes")(lambda: call("GET", "/nodes"))
print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """With the settings of a plain `windlass up`: `auto`."""
    with Platform(tmp_path_factory.mktemp("neighbours") / "home") as made:
        yield made


@pytest.fixture(scope="module")
def people(platform: Platform) -> tuple[Caller, Caller]:
    """Ada and bob, each with a project of their own."""
    made = People(platform)
    made.project("red")
    made.project("blue")
    return made.user("ada", project="red", role="member"), made.user(
        "bob", project="blue", role="member"
    )


def submit(who: Caller, code: str, *words: str, **spec: Any) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), *words]
    answer = who.ok("POST", "/jobs", {"spec": {"run": command, **spec}})
    return str(answer["id"])


def logs(who: Caller, job: str) -> str:
    return who.call("GET", f"/jobs/{job}/logs").text


def over(who: Caller, job: str) -> dict[str, Any] | None:
    found: dict[str, Any] = who.ok("GET", f"/jobs/{job}")
    return found if found["state"] in ("succeeded", "failed", "cancelled") else None


def ended(pid: int) -> bool:
    """Gone, or dead and only not yet collected by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.fixture
def victim(platform: Platform, people: tuple[Caller, Caller]) -> Iterator[dict[str, Any]]:
    """Ada's job, at work; all that bob could know of it."""
    ada, _ = people
    job = submit(ada, VICTIM, environment={"vars": {"ADAS_SECRET": SECRET}})
    wait_for(lambda: "ready" in logs(ada, job), 60, "the victim is at work")
    folder = platform.attempts(job)[-1]
    known = json.loads((folder / "processes.json").read_text())
    told = ada.ok("GET", f"/jobs/{job}")["attempts"][-1]["isolation"]["local"]
    assert platform.process is not None
    yield {
        "job": job,
        "folder": str(folder),
        "rank": known["ranks"][0]["pid"],
        "worker": platform.worker_pid(folder),
        "server": platform.process.pid,
        "uid": told.get("uid", 0),
        "isolation": told,
        "cgroups": known["cgroups"],
        "secret": SECRET,
    }
    ada.ok("POST", f"/jobs/{job}/stop", {"now": True})
    wait_for(lambda: over(ada, job), 60, "the victim ends")


@needs_level_1
@pytest.mark.parametrize("network", ["host", "none"])
def test_nothing_of_the_neighbour_or_the_server_can_be_reached(
    platform: Platform, people: tuple[Caller, Caller], victim: dict[str, Any], network: str
) -> None:
    _, bob = people
    home, folder = platform.home, Path(victim["folder"])
    files = [home / n for n in ("windlass.db", "kek", "credentials.json", "server.json", "id")]
    files += [folder / n for n in ("token", "launch.json", "out/result", "work", "worker.json")]
    files += [Path("/proc") / str(victim["rank"]) / n for n in ("environ", "maps", "root/etc")]
    files += [Path("/etc/shadow"), Path("/run/windlass/uids/turn")]
    assert all(path.exists() for path in files), "what is attacked is there"
    target = {
        **victim,
        "files": list(map(str, files)),
        # What it may see on the way to its own folders, and nothing else.
        "way": ["attempts", "jobs"],
        "folders": [str(home), str(folder), str(folder / "out"), "/run/windlass"],
        "plant": [str(home), str(folder.parent), "/etc", "/run", "/var/tmp/..", "/dev/mqueue"],
    }
    del target["folder"]
    job = submit(bob, ATTACK, json.dumps(target), isolation={"network": network})
    done = wait_for(lambda: over(bob, job), 90, "the attack ends")
    assert done["state"] == "succeeded", logs(bob, job)
    found: dict[str, str] = json.loads(logs(bob, job).splitlines()[-1])
    assert len(found) > 50
    got = {name: result for name, result in found.items() if not result.startswith("refused")}
    if victim["isolation"]["abstract_sockets"] == "shared" and network == "host":
        got.pop("abstract socket", None)  # an old kernel: the job's view says so
    if victim["isolation"]["metadata_address"] == "reachable" and network == "host":
        got.pop("metadata address", None)
        got.pop("metadata address by version 6", None)
    assert got == {}
    assert platform.process is not None and platform.process.poll() is None
    os.kill(victim["rank"], 0)
    assert platform.worker_pid(folder) == victim["worker"]


@needs_level_1
def test_two_people_on_one_server_are_kept_apart_without_being_asked(
    platform: Platform, victim: dict[str, Any]
) -> None:
    told = victim["isolation"]
    assert told["level"] == 1 and told["uid"] >= 200_000 and told["capabilities"] == "none"
    assert os.stat(f"/proc/{victim['rank']}").st_uid == told["uid"]
    shown = platform.cli("show", victim["job"], "--project", "red")
    if shown.returncode == 0:
        assert f"level 1 · network host · uid {told['uid']}" in shown.stdout


@needs_level_1
def test_a_uid_is_the_jobs_own_through_a_killed_server(
    platform: Platform, people: tuple[Caller, Caller], victim: dict[str, Any]
) -> None:
    _, bob = people
    platform.kill()
    platform.start()
    code = "import os, time; print('uid', os.getuid(), flush=True); time.sleep(600)"
    jobs = [submit(bob, code) for _ in range(3)]
    try:
        for job in jobs:
            wait_for(lambda job=job: "uid" in logs(bob, job), 60, "it runs")  # type: ignore[misc]
        uids = {int(logs(bob, job).split()[-1]) for job in jobs}
        assert len(uids) == 3 and victim["uid"] not in uids
        assert os.stat(f"/proc/{victim['rank']}").st_uid == victim["uid"]
    finally:
        for job in jobs:
            bob.ok("POST", f"/jobs/{job}/stop", {"now": True})
        for job in jobs:
            wait_for(lambda job=job: over(bob, job), 60)  # type: ignore[misc]


@needs_level_1
def test_what_no_node_can_give_is_refused_with_what_there_is(
    people: tuple[Caller, Caller],
) -> None:
    ada, _ = people
    for level in (2, 3):
        spec = {"run": ["true"], "isolation": {"level": level}}
        answer = ada.call("POST", "/jobs", {"spec": spec})
        assert answer.status_code == 422, answer.text
        error = answer.json()["error"]
        assert error["code"] == "never-fits"
        assert f"no node offers isolation-{level} (there are: isolation-1" in error["message"]


def test_one_person_alone_keeps_the_machine_as_it_is(tmp_path: Path) -> None:
    """Level 0, and what that does not hold: the worker's own user, so all that it may read."""
    (tmp_path / "data").write_text("mine")
    with Platform(tmp_path / "home", "--isolation", "auto") as platform:
        code = f"import os; print(os.getuid(), open({str(tmp_path / 'data')!r}).read())"
        job = platform.submit([sys.executable, "-c", code])
        assert platform.wait(job).state == "succeeded"
        assert platform.logs(job).strip() == f"{os.getuid()} mine"
        detail = platform.call("GET", f"/jobs/{job.id}").json()
        assert detail["attempts"][0]["isolation"]["local"]["level"] == 0
        assert "isolation  level 0 · network host" in platform.cli("show", job.id).stdout


def test_a_server_told_to_keep_jobs_apart_does_or_does_not_start(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "home", "--isolation", "1")
    if ABLE.level < 1:
        with pytest.raises(AssertionError, match="isolation level 1 cannot be had"):
            platform.start()
        return
    with platform:
        job = platform.submit([sys.executable, "-c", "import os; print(os.getuid())"])
        assert platform.wait(job).state == "succeeded"
        assert int(platform.logs(job)) >= 200_000
        assert platform.call("GET", "/nodes").json()["items"][0]["isolation"]["level"] == "1"


@needs_level_1
def test_a_killed_worker_takes_its_job_with_it_and_the_next_attempt_runs(
    platform: Platform, people: tuple[Caller, Caller]
) -> None:
    """R-I4: of the dead attempt no process, no cgroup, no mount is left."""
    ada, _ = people
    code = """
import os, time
marks = os.environ["WINDLASS_CHECKPOINT_DIR"]
print("attempt", os.environ["WINDLASS_ATTEMPT"], sorted(os.listdir(marks)), flush=True)
open(os.path.join(marks, "mark"), "a").close()
if os.environ["WINDLASS_ATTEMPT"] == "1":
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
"""
    job = submit(ada, code, retry={"times": 1, "on": ["lost"], "backoff": "0s"})
    wait_for(lambda: "attempt 1" in logs(ada, job), 60)
    folder = platform.attempts(job)[-1]
    known = json.loads((folder / "processes.json").read_text())
    pid = platform.worker_pid(folder)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert (wait_for(lambda: over(ada, job), 60))["state"] == "succeeded"
    assert "attempt 2 ['mark']" in logs(ada, job), "its files follow it to the next user"
    assert ended(known["ranks"][0]["pid"])
    assert not any(map(os.path.isdir, known["cgroups"]))
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
