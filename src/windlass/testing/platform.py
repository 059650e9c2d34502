"""A real server in its own process and home, for tests, fault tests and benchmarks.

    with Platform(tmp_path) as platform:
        job = platform.run("python3 -c 'print(1)'")
        platform.kill(); platform.start()

On leaving, every job's processes are ended and the server is stopped; nothing else is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import weakref
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx

from windlass.client import Client, Job
from windlass.core.jobs import TERMINAL
from windlass.core.signing import sign

T = TypeVar("T")
WITNESS = Path(__file__).with_name("witness.py")
LEAST_SECONDS = 120.0
"""Nothing that is waited for is given up before: a busy machine is no fault. What is meant to be
quick is measured by whoever means it."""


def wait_for(look: Callable[[], T | None], seconds: float = 30.0, what: str = "") -> T:
    """What `look` finds. Polls: only for what cannot tell by itself, such as a process's end."""
    seconds = max(seconds, LEAST_SECONDS)
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what or look}")
        time.sleep(0.02)


LIVE: weakref.WeakSet[Platform] = weakref.WeakSet()
"""Those that are not left yet: `tests/conftest.py` adds what they say to what failed."""


class Platform:
    def __init__(
        self, home: Path, *args: str, database: str = "", env: dict[str, str] | None = None
    ) -> None:
        self.home = home
        self.args: Sequence[str] = args
        self.database = database
        self.env = {**os.environ, **(env or {}), "WINDLASS_HOME": str(home)}
        self.env.pop("WINDLASS_URL", None)
        self.before: Sequence[str] = ()
        """Words before the server's own command, as in `prlimit --nofile=512 …`."""
        self.port = 0
        self.evidence = home.with_name(home.name + "-evidence")
        self.process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._beside = False

    def beside(self, home: Path, *args: str, database: str = "") -> Platform:
        """Another server, on the same database, that reaches the same workers: what the engine
        keeps of them is shared, as servers of one cluster share it. This one has started once."""
        other = Platform(home, *args, database=database or self.database)
        other.env |= {name: value for name, value in self.env.items() if name != "WINDLASS_HOME"}
        other.evidence, other._beside = self.evidence, True
        home.mkdir(parents=True, mode=0o700)
        for name in ("attempts", "jobs", "blobs", "cache", "kek"):
            if name != "kek":
                (self.home / name).mkdir(exist_ok=True, mode=0o700)
            (home / name).symlink_to(self.home / name)
        return other

    def start(self, seconds: float = 2 * LEAST_SECONDS) -> Platform:
        """Start the server (again: on the same port) and wait until it answers."""
        self.spawn()
        try:
            wait_for(self._up, seconds, "the server answers")
        except BaseException:
            if self.process is not None:
                self.kill()  # nobody else knows of it
            raise
        self.port = int(self.about()["url"].rpartition(":")[2])
        return self

    def spawn(self) -> None:
        """Start the server, and wait for nothing: it may never come to answer."""
        assert self.process is None, "it runs already"
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.note.unlink(missing_ok=True)
        command = [
            *self.before, sys.executable, "-m", "windlass.server", "--home", str(self.home),
            "--port", str(self.port), *self.args,
        ]  # fmt: skip
        if self.database:
            command += ["--database", self.database]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            raise AssertionError(f"the server ended with {code}:\n{self.log()[-4000:]}")
        return self.note.exists()

    @property
    def note(self) -> Path:
        return self.home / "server.json"

    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.note.read_text())
        return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")

    def credentials(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.home / "credentials.json").read_text())
        return found

    @property
    def client(self) -> Client:
        """One client, for one thread; `new_client` gives more."""
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def new_client(self, patience_seconds: float = LEAST_SECONDS) -> Client:
        key = self.credentials()
        made = Client(
            self.url,
            access_key=key["access_key"],
            secret_key=key["secret_key"],
            patience_seconds=patience_seconds,
        )
        made.http.settle_seconds = max(made.http.settle_seconds, patience_seconds)
        return made

    def submit(self, run: str | Sequence[str], **spec: Any) -> Job:
        """Submit without code; `run` is a command line or its words."""
        words = run if isinstance(run, str) else list(run)
        return self.client.jobs.submit({"run": words, **spec})

    def witness(self, *words: object, **spec: Any) -> Job:
        """Submit `windlass.testing.witness`, which tells what really ran, and when."""
        return self.submit(self.witness_command(*words), **spec)

    def witness_command(self, *words: object) -> list[str]:
        return [sys.executable, str(WITNESS), str(self.evidence), *map(str, words)]

    def gate(self, name: str = "gate") -> Path:
        """A file that is not there yet; `touch` lets the witnesses that wait for it end."""
        self.evidence.mkdir(parents=True, exist_ok=True)
        return self.evidence / name

    def said(self, job: Job | str, what: str | None = None) -> list[dict[str, Any]]:
        """What the witnesses of a job said, in order."""
        path = self.evidence / f"{job if isinstance(job, str) else job.id}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [line for line in found if what is None or line["what"] == what]

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        token: str | None = None,
        seconds: float = LEAST_SECONDS,
    ) -> httpx.Response:
        """One plain request below `/api/v1`, signed (or with a bearer token), never repeated."""
        content = b"" if body is None else json.dumps(body).encode()
        address = self.url + "/api/v1" + path
        whole = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        if content:
            whole["Content-Type"] = "application/json"
        if token is not None:
            whole["Authorization"] = f"Bearer {token}"
        else:
            key = self.credentials()
            whole |= sign(
                method, address, whole, content, key["access_key"], key["secret_key"],
                int(time.time() * 1000),
            )  # fmt: skip
        with httpx.Client(trust_env=False, verify=False, timeout=seconds) as client:
            return client.request(method, address, content=content, headers=whole)

    def wait(self, job: Job | str, seconds: float = 60.0) -> Job:
        """The job once it is over."""
        ref = job if isinstance(job, str) else job.id

        def over() -> Job | None:
            found = self.client.jobs.get(ref)
            return found if found.state in TERMINAL else None

        return wait_for(over, seconds, f"job {ref} ends")

    def wait_state(self, job: Job | str, *states: str, seconds: float = 30.0) -> Job:
        ref = job if isinstance(job, str) else job.id

        def there() -> Job | None:
            found = self.client.jobs.get(ref)
            return found if found.state in states else None

        return wait_for(there, seconds, f"job {ref} is {' or '.join(states)}")

    def wait_why(self, job: Job | str, *words: str, seconds: float = 30.0) -> dict[str, Any]:
        """What `why` answers, once its sentence has all these words. A state that is seen is not
        yet explained: the scheduler looks at a job some time after it has moved."""
        ref = job if isinstance(job, str) else job.id
        last: list[str] = []

        def told() -> dict[str, Any] | None:
            found: dict[str, Any] = self.client.jobs.why(ref)
            last[:] = [found["sentence"]]
            return found if all(word in found["sentence"] for word in words) else None

        try:
            return wait_for(told, seconds, f"job {ref} is explained by {words}")
        except AssertionError as err:
            raise AssertionError(f"{err}; the last it said: {last}") from None

    def logs(self, job: Job | str, **options: Any) -> str:
        ref = job if isinstance(job, str) else job.id
        lines = self.client.jobs.logs(ref, **options)
        return "\n".join(line if isinstance(line, str) else line["text"] for line in lines)

    def cli(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command line, as a user would call it."""
        command = [sys.executable, "-m", "windlass.cli.main", *words]
        usual = {"capture_output": True, "text": True, "timeout": 240, "env": self.env}
        return subprocess.run(command, **{**usual, **options})

    def freeze(self) -> None:
        """SIGSTOP: it is there, and does nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def frozen(self) -> bool:
        """Whether it was stopped, by whomever."""
        assert self.process is not None
        return _stat(self.process.pid).startswith("T")

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.wait(timeout=LEAST_SECONDS)
        self.process = None
        if self._client is not None:
            self._client.close()
            self._client = None

    def attempts(self, job: Job | str | None = None) -> list[Path]:
        """The directories of all attempts on all nodes, or of a job's, oldest first."""
        found = [path for path in self.home.glob("attempts/*/*") if path.is_dir()]
        if job is None:
            return sorted(found)
        ref = job if isinstance(job, str) else job.id
        about = [(read_json(path / "launch.json"), path) for path in found]
        return [
            path
            for launch, path in sorted(
                about, key=lambda pair: (pair[0].get("attempt", 0), pair[1])
            )
            if launch.get("job_id") == ref
        ]

    def worker_pid(self, folder: Path) -> int | None:
        """The worker of an attempt's directory, if it lives."""
        about = read_json(folder / "worker.json")
        if about and _same_process(about["pid"], about["start_time"]):
            return int(about["pid"])
        return None

    def kill_worker(self, job: Job | str) -> int:
        """SIGKILL the worker of a job's newest attempt."""
        pid = wait_for(lambda: self.worker_pid(self.attempts(job)[-1]), 10, "its worker lives")
        os.kill(pid, signal.SIGKILL)
        return pid

    def replace_worker(self, script: Callable[[Path], str]) -> None:
        """Workers that start from here on, until the server starts again, run this script; it is
        told where the true worker's zipapp is."""
        packed = self.home / "worker.pyz"
        true = packed.with_name("worker-true.pyz")
        if not true.exists():
            os.link(packed, true)
        fresh = packed.with_suffix(".new")
        with zipfile.ZipFile(fresh, "w") as archive:
            archive.writestr("__main__.py", script(true))
        os.replace(fresh, packed)

    def clean(self) -> None:
        """End whatever is left of any job here."""
        worker = self.home / "worker.pyz"
        marked = set(marked_processes().values())
        for folder in self.attempts():
            pid = self.worker_pid(folder)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            cgroups = read_json(folder / "processes.json").get("cgroups", ())
            left = pid or folder.parent.name in marked or any(map(os.path.isdir, cgroups))
            if left and worker.exists():
                for _ in range(20):
                    done = subprocess.run(
                        [sys.executable, "-I", "-S", str(worker), "reap", str(folder)],
                        capture_output=True,
                    )
                    if done.returncode == 0:
                        break
                    time.sleep(0.05)

    def state(self) -> str:
        """Its jobs and the end of its log, for the report of a test that failed; never raises."""
        try:
            with contextlib.closing(self.new_client(patience_seconds=2)) as client:
                jobs = [f"{job.name} {job.state} {job.reason or ''}" for job in client.jobs.list()]
        except Exception as err:
            jobs = [f"its jobs: {type(err).__name__}: {err}"]
        try:
            log = self.log()[-3000:]
        except OSError as err:
            log = str(err)
        return "\n".join([*jobs, "the end of server.log:", log])

    def __enter__(self) -> Platform:
        LIVE.add(self)
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        LIVE.discard(self)
        if value is not None:
            print(self.state())
        self.kill()
        if not self._beside:  # the other does it, when all have ended
            self.clean()


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file that may not be there, or be half-written."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def marked_processes() -> dict[int, str]:
    """pid → WINDLASS_ATTEMPT_ID of every process that has one."""
    mark = b"WINDLASS_ATTEMPT_ID="
    found = {}
    for name in os.listdir("/proc"):
        try:
            for line in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                if line.startswith(mark):
                    found[int(name)] = line[len(mark) :].decode()
        except (OSError, ValueError):
            continue
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    return (_stat(pid) or "Z")[0] not in "ZX"


def _same_process(pid: int, start_time: int) -> bool:
    words = _stat(pid).split()
    return bool(words) and words[0] not in "ZX" and int(words[19]) == start_time


def _stat(pid: int) -> str:
    """What `/proc/PID/stat` says after the command's name, the state first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].strip()
    except OSError:
        return ""
