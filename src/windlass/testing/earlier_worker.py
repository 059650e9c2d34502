"""A worker of an earlier release, as far as a server can tell: it says what that one said, and
needs in the answers what that one was given.

    record(platform, file)      workers that start from here on write down each call and its answer
    replay(platform, file)      … make the calls of that file, one after the other, and end

Both take the place of the worker's zipapp until the server starts again. A record is for the use
of later releases: it is not to be written anew when the worker changes.
"""

from __future__ import annotations

from pathlib import Path

from windlass.testing.platform import Platform

_RECORD = """
import json, os, sys

sys.path.insert(0, {true!r})
from windlass.worker import main, server

true = server.Server.call

def call(self, method, path, body=None, *rest, **more):
    answer = true(self, method, path, body, *rest, **more)
    told = self._launch
    line = json.dumps([method, path, body, answer])
    for value, name in (
        (told.checkpoint_dir, "@checkpoints@"), (told.directory, "@directory@"),
        (told.attempt_id, "@attempt@"), (told.job_id, "@job@"),
    ):
        line = line.replace(value, name)
    with open({file!r}, "a") as file:
        file.write(line + "\\n")
    return answer

server.Server.call = call
sys.exit(main.main(sys.argv[1:]))
"""

_REPLAY = """
import fcntl, json, os, sys, urllib.request

verb, directory = sys.argv[1:3]
if verb == "reap":
    os.execv(sys.executable, [sys.executable, "-I", "-S", {true!r}, verb, directory])
os.chdir(directory)
lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
told = json.load(open("launch.json"))
token = open("token").read().strip()

def write(name, value):
    with open(name + ".new", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".new", name)

with open("/proc/self/stat", "rb") as file:
    start_time = int(file.read().rpartition(b")")[2].split()[19])
boot_id = open("/proc/sys/kernel/random/boot_id").read().strip()
write("worker.json", {{"pid": os.getpid(), "start_time": start_time, "boot_id": boot_id,
                      "version": "0.0.1"}})

def lacks(old, new, where):
    if isinstance(old, dict):
        if not isinstance(new, dict):
            return where
        for name in old:
            if name not in new:
                return where + "." + name
            found = lacks(old[name], new[name], where + "." + name)
            if found:
                return found
    elif isinstance(old, list):
        if not isinstance(new, list):
            return where
        if old and new:
            return lacks(old[0], new[0], where + "[0]")
    elif old is not None and new is not None and type(old) is not type(new):
        return where
    return ""

calls = open({file!r}).read()
for value, name in (
    (told["checkpoint_dir"], "@checkpoints@"), (directory, "@directory@"),
    (told["attempt_id"], "@attempt@"), (told["job_id"], "@job@"),
):
    calls = calls.replace(name, value)
wrong = []
for line in calls.splitlines():
    method, path, body, answer = json.loads(line)
    if path.endswith("/ended"):
        if wrong:
            body["record"].update(outcome="refused", reason="; ".join(wrong), ranks=[])
        write("exit.json", body["record"])
    request = urllib.request.Request(
        told["urls"][0] + path, method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={{"Authorization": "Bearer " + token, "Content-Type": "application/json"}},
    )
    try:
        while True:
            with urllib.request.urlopen(request, timeout=120) as response:
                given = json.loads(response.read() or b"null")
            if not answer.get("orders") or given.get("orders"):
                break
        found = lacks(answer, given, path)
    except urllib.error.HTTPError as err:
        found = "%s: %d %s" % (path, err.code, err.read()[:500])
    if found:
        wrong.append("not as it was: " + found)
"""


def record(platform: Platform, file: Path) -> None:
    platform.replace_worker(lambda true: _RECORD.format(true=str(true), file=str(file)))


def replay(platform: Platform, file: Path) -> None:
    platform.replace_worker(lambda true: _REPLAY.format(true=str(true), file=str(file)))
