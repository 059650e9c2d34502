"""`windlass tb`: any job in TensorBoard, whatever it logged with.

By default TensorBoard is a job of the platform, behind its login (`client/boards.py`).

With --local, what jobs told comes through the server, with your key, into event files in a folder
of yours; a TensorBoard on this machine reads them. It has no login of its own and a loopback port
is open to every user of the machine, so its pages lie below a path that nobody can guess. Its
arguments go through a pipe: those of a command can be read by others.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from windlass.cli import output
from windlass.cli.completion import complete_job
from windlass.cli.session import Session, verb
from windlass.client.eventfile import EventFile
from windlass.core.errors import Unavailable, WindlassError

EVERY_SECONDS = 5.0
POINTS = 5000
"""Of each series at a time; TensorBoard itself keeps a thousand, drawn by lot."""

LAUNCHER = """
import json, sys
from tensorboard import program
tool = program.TensorBoard()
tool.configure(argv=["tensorboard", *json.loads(sys.stdin.readline())])
print(tool.launch(), flush=True)
sys.stdin.read()
"""


@verb("tb", outputs=("table",), quiet=False)
@click.option("--export", metavar="DIR", type=click.Path(path_type=Path),
              help="Only write the event files there.")  # fmt: skip
@click.option("--local", is_flag=True, help="TensorBoard on this machine, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of a --local one.")
@click.option("--python", metavar="PATH", help="The Python that has TensorBoard.")
@click.option("--idle", metavar="TIME", default="30m", help="It ends when nobody looks so long.")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_job)
def command(
    session: Session,
    jobs: Sequence[str],
    export: Path | None,
    local: bool,
    port: int,
    python: str | None,
    idle: str,
) -> None:
    """Any job in TensorBoard, whatever it logged with.

    TensorBoard runs as a job of the platform; its address is printed, made for you alone. The
    job's Python needs it: pip install 'windlass[tb]'."""
    found = [session.client.jobs.detail(session.ref(job)) for job in jobs]
    if export is None and not local:
        _as_job(session, found, python, idle)
        return
    python = python or sys.executable
    if export is None:
        check(python)
    with ExitStack() as stack:
        folder = export or Path(stack.enter_context(_private_folder()))
        followed = [Followed(session, detail, folder) for detail in found]
        for each in followed:
            stack.callback(each.close)
        written = sum(each.take() for each in followed)
        if export is not None:
            click.echo(str(export))
            session.say(f"{written} points; tensorboard --logdir {export}")
            return
        address = stack.enter_context(Board(python, folder, port))
        click.echo(address)
        session.say("Ctrl-C ends it")
        try:
            while True:
                time.sleep(EVERY_SECONDS)
                for each in followed:
                    each.take_more()
        except KeyboardInterrupt:
            session.say("")


def _as_job(
    session: Session, found: Sequence[dict[str, Any]], python: str | None, idle: str
) -> None:
    from windlass.cli.moments import duration
    from windlass.cli.specs import user_python
    from windlass.client import boards
    from windlass.client.config import loopback

    client, seconds = session.client, duration("--idle", idle)
    if python is None and loopback(session.config.get("url").value):
        python = user_python()
    me = str(client.http.get("/session")["user"])
    job = boards.running(client, found, me)
    if job is None:
        job = boards.start(client, found, python=python, idle_seconds=seconds)
        session.say(f"started {job.name}; it ends when nobody looks for {idle}")
    about = boards.wait(client, job)
    click.echo(about["url"])
    session.say(f"the address is yours alone; windlass stop {job.name} ends it")


class Followed:
    """One job: what it told, written as it comes."""

    def __init__(self, session: Session, detail: dict[str, Any], folder: Path) -> None:
        self._session = session
        self._id = detail["id"]
        name = output.tame(detail["name"]).replace("/", "-").lstrip(".") or self._id
        self._folder = folder / f"{name}-{self._id[:6]}"
        self._files: dict[int, EventFile] = {}
        self._until: int | None = None
        self._last: set[tuple[Any, ...]] = set()
        """What was written of the newest millisecond: more of it may come."""
        self._done = False

    def take(self) -> int:
        """Write what is new; how many points that were."""
        job = self._session.client.jobs.get(self._id)
        found = self._session.client.jobs.metrics(
            self._id, points=POINTS, by="time", low=self._until
        )
        count, newest = 0, self._until or 0
        told: set[tuple[Any, ...]] = set()
        for item in found:
            file = self._file(item["rank"], item["points"][0][1])
            for place, (step, at_ms, value) in enumerate(item["points"]):
                point = (item["key"], item["rank"], step, at_ms, value)
                if at_ms > newest:
                    newest, told = at_ms, set()
                if at_ms == newest:
                    told.add(point)
                if point in self._last:
                    continue
                file.scalar(item["key"], place if step is None else step, at_ms, float(value))
                count += 1
            file.flush()
        self._until, self._last = newest or None, told
        self._done = job.done  # asked before: what came meanwhile was read
        return count

    def take_more(self) -> None:
        """The same while the job lives; a server that is away is asked again later."""
        if self._done:
            return
        try:
            self.take()
        except WindlassError as err:
            self._session.say(f"no news of {self._id[:12]}: {err.message}")

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file(self, rank: int, at_ms: int) -> EventFile:
        if rank not in self._files:
            folder = self._folder / f"rank-{rank}" if rank else self._folder
            self._files[rank] = EventFile(folder, at_ms)
        return self._files[rank]


class Board:
    """A TensorBoard that ends with us, also when we are killed: its input closes."""

    def __init__(self, python: str, folder: Path, port: int) -> None:
        self._command = [python, "-c", LAUNCHER]
        self._prefix = f"/{secrets.token_urlsafe(18)}"
        # Its data server listens on a port of its own that asks nobody: off.
        self._words = [
            "--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port),
            "--path_prefix", self._prefix, "--load_fast", "false",
            "--reload_interval", str(int(EVERY_SECONDS)),
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> str:
        process = self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(self._words) + "\n")
        process.stdin.flush()
        address = process.stdout.readline().strip()
        if not address:
            self.__exit__()
            said = process.stderr.read().strip().splitlines()
            raise Unavailable(f"TensorBoard did not start: {said[-1] if said else 'no reason'}")
        return address

    def __exit__(self, *_: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def check(python: str) -> None:
    """Raises Unavailable, with what to do, where TensorBoard is not installed."""
    asked = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"
    try:
        missing = subprocess.run([python, "-c", asked], check=False).returncode
    except OSError as err:
        raise Unavailable(f"--python {python}: {err.strerror}") from None
    if missing:
        raise Unavailable(
            f"TensorBoard is not installed for {python}",
            hint="pip install 'windlass[tb]', or write files for one elsewhere: --export DIR",
        )


def _private_folder() -> Any:
    return tempfile.TemporaryDirectory(prefix="windlass-tb-")
