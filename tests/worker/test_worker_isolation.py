"""R-S20, R-S21 on one worker: what a job of level 1 can and cannot do. Real processes; skipped,
with the reason, where the machine cannot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from worker_lab import Lab, until
from worker_room import ABLE, in_room, member, processes_of, removed, said, whole

from windlass.worker import cgroups, debug, devices, kernel, layout, seccomp

# Who it is


@whole
def test_a_job_is_a_user_of_its_own_without_any_power(lab: Lab) -> None:
    code = """
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
tell(uid=os.getresuid(), gid=os.getresgid(), groups=os.getgroups(), umask=os.umask(0o77),
     **{name: status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")})
"""
    worker = in_room(lab, code).start()
    assert worker.end()["outcome"] == "succeeded"
    found, told = said(worker), lab.plane.wait_for("register")["isolation"]
    assert found["uid"] == [told["uid"]] * 3 == found["gid"] and found["groups"] == []
    assert 200_000 <= told["uid"] <= 265_535 and found["umask"] == 0o77
    assert (found["CapEff"], found["CapBnd"]) == ("0" * 16, "0" * 16)
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    assert told["level"] == 1 and told["seccomp"] == "deny list"


@whole
def test_a_job_writes_in_its_own_folders_alone(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the server")
    code = f"""
def attempt(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as err:
        return type(err).__name__
own = [os.environ["WINDLASS_OUTPUT_DIR"], os.environ["WINDLASS_RUN_DIR"], os.environ["HOME"],
       os.environ["TMPDIR"], os.environ["WINDLASS_CHECKPOINT_DIR"], "/tmp", "/dev/shm", "."]
base = {str(tmp_path)!r}
here = os.path.dirname(os.getcwd())
tell(own=[attempt(each + "/x") for each in own],
     others=[attempt(each) for each in ("/etc/x", "/usr/x", "/var/x", "/x", "/sys/x", "/run/x",
             "/sys/fs/cgroup/memory/x", here + "/exit.json", here + "/x")],
     hidden=[os.path.exists(base + "/secret"), os.path.exists(here + "/token"),
             os.path.exists(here + "/launch.json"), os.path.exists(here + "/logs")],
     seen=sorted(os.listdir(here)))
"""
    worker = in_room(lab, code).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    found = said(worker)
    assert set(found["own"]) == {"written"}
    assert "written" not in found["others"]
    assert found["hidden"] == [False] * 4
    assert found["seen"] == ["debug", "files", "home", "out", "run", "start", "tmp", "work"]


@whole
def test_what_a_job_leaves_in_tmp_is_its_own_and_goes_with_it(lab: Lab) -> None:
    """R-S21."""
    code = """
import tempfile
made = tempfile.NamedTemporaryFile(delete=False)
tell(name=made.name, mode=oct(os.stat(made.name).st_mode), folder=os.stat("/tmp").st_uid,
     uid=os.getuid(), listing=os.listdir("/tmp"))
"""
    worker = in_room(lab, code).start()
    assert worker.end()["outcome"] == "succeeded"
    found = said(worker)
    assert found["mode"] == "0o100600" and found["folder"] == found["uid"]
    assert not os.path.exists(found["name"]) and not (worker.directory / "tmp").exists()
    # All it saw there was its own file and the ways to its folders and to its Python.
    ways = [str(worker.directory), *layout.of_python(sys.executable)]
    known = {Path(way).parts[2] for way in ways if way.startswith("/tmp/")}
    assert set(found["listing"]) - known == {Path(found["name"]).name}


@whole
def test_the_kernel_refuses_what_no_training_needs(lab: Lab) -> None:
    code = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    return errno.errorcode.get(ctypes.get_errno(), "") if libc.syscall(*words) < 0 else "done"
numbers = {"x86_64": (165, 272, 250, 321, 308, 56), "aarch64": (40, 97, 219, 280, 268, 220)}
mount, unshare, keyctl, bpf, setns, clone = numbers[os.uname().machine]
tell(mount=call(mount, b"none", b"/tmp", b"tmpfs", 0, 0), users=call(unshare, 0x10000000),
     plain=call(unshare, 0x200), keyctl=call(keyctl, 0, -3, 0), bpf=call(bpf, 0, 0, 0),
     setns=call(setns, 0, 0), ring=call(425, 1, 0), clone3=call(435, 0, 0),
     namespace=call(clone, 0x20000000 | 17, 0, 0, 0, 0))
import subprocess, threading
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
subprocess.run(["true"], check=True)
"""
    worker = in_room(lab, code).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    assert said(worker) == {
        "mount": "EPERM", "users": "EPERM", "plain": "done", "keyctl": "EPERM", "bpf": "EPERM",
        "setns": "EPERM", "ring": "ENOSYS", "clone3": "ENOSYS", "namespace": "EPERM",
    }  # fmt: skip


def test_the_filter_is_whole_for_each_processor() -> None:
    for machine in ("x86_64", "aarch64"):
        code = seccomp.code_for(machine)
        assert code is not None and len(code) % 8 == 0 and len(code) // 8 < 100
    assert seccomp.code_for("vax") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a cgroup and a device")
def test_a_device_that_was_not_granted_cannot_be_opened_even_by_root(tmp_path: Path) -> None:
    """What the job's cgroup holds by itself: neither its user nor its /dev is needed for it."""
    two, _ = cgroups.own_groups()
    group = Path(two or "/nowhere") / f"windlass-test-devices-{os.getpid()}"
    granted = tmp_path / "granted"
    try:
        group.mkdir()
        os.mknod(granted, 0o600 | stat.S_IFCHR, os.makedev(10, 229))
    except OSError as err:
        pytest.skip(f"no cgroup of version 2, or no devices, here: {err}")
    try:
        if not devices.restrict(str(group), [str(granted)], kernel.Kernel()):
            pytest.skip("this kernel runs no program for a cgroup's devices")
        code = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
def opens(name, *numbers):
    path = os.path.join(sys.argv[2], name)
    try:
        if numbers: os.mknod(path, 0o20600, os.makedev(*numbers))
        os.close(os.open(path, os.O_RDONLY))
        return "opened"
    except OSError as err:
        return err.strerror
print(opens("/dev/null"), opens("/dev/urandom"), opens("granted") != "Operation not permitted",
      opens("kernel-log", 1, 11), opens("null-again", 1, 3), sep="|")
"""
        words = [sys.executable, "-c", code, str(group), str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout == "opened|opened|True|Operation not permitted|opened\n"
    finally:
        until(lambda: removed(group))


@whole
def test_ranks_of_one_node_share_their_room(lab: Lab) -> None:
    code = """
import time
rank = int(os.environ["WINDLASS_RANK"])
open(f"/dev/shm/{rank}", "w").close()
while len(os.listdir("/dev/shm")) < 2: time.sleep(0.01)
tell(pid=os.getpid(), parent=os.getppid())
"""
    worker = lab.worker("", members=member(0, 2, code), **lab.isolated()).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    one, two = said(worker), said(worker, "worker-0-1.out")
    assert one["pid"] != two["pid"] and one["parent"] == two["parent"] == 0
    assert not (Path("/dev/shm") / "0").exists()


# Its end


@whole
def test_nothing_of_a_job_outlives_its_worker(lab: Lab) -> None:
    code = """
import subprocess, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
tell(ready=True)
time.sleep(600)
"""
    worker = in_room(lab, code).start()
    uid = lab.plane.wait_for("register")["isolation"]["uid"]
    until(lambda: worker.logs())
    assert len(processes_of(uid)) >= 2
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not processes_of(uid))
    assert worker.process is not None and worker.process.wait(60) == -signal.SIGKILL
    assert worker.reap() == 0 and worker.record()["outcome"] == "lost"


@whole
def test_a_job_can_save_when_it_is_told_to_end(lab: Lab) -> None:
    code = """
import signal, time
def save(*_):
    open(os.environ["WINDLASS_OUTPUT_DIR"] + "/saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
tell(ready=True)
while True: time.sleep(1)
"""
    worker = in_room(lab, code, grace_ms=30_000).start()
    until(lambda: worker.logs())
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.end()["outcome"] == "cancelled"
    assert (worker.directory / "out" / "saved").exists()


@whole
def test_a_stack_is_shown_of_a_rank_in_its_room(lab: Lab) -> None:
    code = "import time\ndef lost_in_thought():\n    tell(ready=True)\n    time.sleep(600)\n"
    worker = in_room(lab, code + "lost_in_thought()").start()
    until(lambda: worker.logs())
    lab.plane.order(kind="stack", rank=None)
    answer = lab.plane.wait_for("orders/1")
    assert answer["ok"] and "lost_in_thought" in answer["result"]["ranks"][0]["text"]


@whole
def test_a_planted_link_or_program_is_nothing_to_the_worker(lab: Lab, tmp_path: Path) -> None:
    """The worker is root and looks at what the job has written: never through its links."""
    proof = tmp_path / "ran-as-root"
    secret = tmp_path / "secret"
    secret.write_text('{"t": 1, "kind": "metric", "step": 1, "values": {"k3pt": 1}}\n')
    code = f"""
import time
folder = os.environ["WINDLASS_RUN_DIR"]
os.symlink({str(secret)!r}, folder + "/spool-0.jsonl")
line = {{"t": 1, "kind": "metric", "step": 1, "values": {{"mine": 1}}}}
open(folder + "/spool-1.jsonl", "w").write(json.dumps(line) + "\\n")
ranks = os.path.join(os.path.dirname(folder), "debug", "ranks")
for name in os.listdir(ranks):
    os.unlink(os.path.join(ranks, name)); os.symlink({str(secret)!r}, os.path.join(ranks, name))
open("py-spy", "w").write("#!/bin/sh\\ntouch {proof}\\n"); os.chmod("py-spy", 0o755)
tell(ready=True)
time.sleep(600)
"""
    worker = in_room(lab, code, python=str(tmp_path / "attempts" / "n0" / "work" / "python"))
    worker.start()
    until(lambda: worker.logs())
    lab.plane.order(kind="stack", rank=None)
    answer = lab.plane.wait_for("orders/1")
    assert answer["ok"] and not proof.exists()
    # What comes after the link has been read, so the link was passed over.
    assert "mine" in json.dumps(lab.plane.wait_for("spool"))
    assert not any("k3pt" in json.dumps(body) for _, _, body in lab.plane.calls)
    link = tmp_path / "stack-1.txt"
    link.symlink_to(secret)
    assert debug._text_of(str(link)) == "" and debug._text_of(str(secret)) != ""


# What it is made of


def test_a_python_below_a_closed_folder_is_shown_and_nothing_else_of_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "env" / "lib" / "python3.11").mkdir(parents=True)
    (closed / "env" / "bin").mkdir()
    (closed / "env" / "bin" / "python").touch()
    (closed / "env" / "notes").touch()
    shown = layout.of_python(str(closed / "env" / "bin" / "python"))
    assert str(closed / "env" / "lib") in shown and str(closed / "env" / "notes") not in shown
    # What is no Python's opens nothing: the job names the path as it likes.
    assert layout.of_python(str(closed / "python")) == []
    closed.chmod(0o700)
    assert layout.Plan((), shown, (), "", True).shown == shown
    if os.geteuid() == 0:  # and what somebody else has closed stays closed
        os.chown(closed, 300_000, 300_000)
        assert layout.Plan((), shown, (), "", True).shown == []


def test_a_level_that_cannot_be_had_refuses_the_launch(lab: Lab) -> None:
    told = lab.isolated(1)
    told["isolation"]["uids"] = [300_003, 300_003]
    worker = lab.worker("print(1)", **told)
    with contextlib.ExitStack() as stack:
        if ABLE.level:  # the only user there is has a process already
            left = stack.enter_context(subprocess.Popen(["sleep", "600"], user=300_003, cwd="/"))
            stack.callback(left.kill)
        record = worker.start().end()
    assert record["outcome"] == "refused" and "cannot be had on this node" in record["reason"]
    assert worker.logs() == b""
    left = list(Path("/sys/fs/cgroup").glob(f"**/windlass-{lab.attempt_id}-*"))
    assert left == [], "what was made before is taken back"
