"""A real PostgreSQL for tests: in a temporary directory, on a Unix socket, never as root.

    with postgres_server() as server:        # None, with the reason printed, if there is none
        url = server.fresh()                 # an empty database of its own
        server.kill(); server.start()        # what a fault test does to it
    other = server.standby()             # a copy that streams, and has all that was acknowledged
    server.kill(); other.promote()

`fsync` is off: tests kill the server, not the machine, and the kernel keeps what was written.
"""

from __future__ import annotations

import ctypes
import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "max_prepared_transactions": "0",
    "autovacuum": "off",
    "logging_collector": "off",
}


@contextmanager
def postgres_server() -> Iterator[PostgresServer | None]:
    """A running server, removed with all it wrote afterwards."""
    try:
        server = PostgresServer()
    except LookupError as reason:
        print(f"PostgreSQL tests are skipped: {reason}")
        yield None
        return
    try:
        server.start()
        yield server
    finally:
        server.remove()


class PostgresServer:
    """One cluster. Raises LookupError when PostgreSQL is not installed."""

    user = "windlass"
    """Whom servers under test log in as: nobody special, so that row-level security holds it."""
    administrator = "postgres"

    def __init__(self, primary: PostgresServer | None = None) -> None:
        self.binaries = _find_binaries()
        self._identity = _identity()
        # Short, because a socket's path may have no more than about 100 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="wlpg-", dir="/tmp"))
        self.log = self.directory / "log"
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        # The server dies with the *thread* that started it, so that one stays as long as we do.
        self._starter = ThreadPoolExecutor(1)
        self._numbers = itertools.count(1)
        # A new database takes longer than most tests that want one, so the next is made meanwhile.
        self._maker = ThreadPoolExecutor(1)
        self._next: dict[str, Future[str]] = {}
        if self._identity:
            os.chown(self.directory, self._identity["user"], self._identity["group"])
        try:
            self._make_data(primary)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _make_data(self, primary: PostgresServer | None) -> None:
        if primary is None:
            program = "initdb"
            words = ["-U", self.administrator, "-A", "trust", "-E", "UTF8", "--locale=C"]
            words += ["--no-instructions"]
        else:
            program = "pg_basebackup"
            where = f"host={primary.directory} user={self.administrator}"
            words = ["--write-recovery-conf", "--checkpoint=fast", "--dbname", where]
        subprocess.run(
            [self.binaries / program, "-D", str(self._data), "--no-sync", *words],
            check=True,
            capture_output=True,
            cwd=self.directory,
            **self._identity,
        )

    @property
    def socket(self) -> Path:
        return self.directory / ".s.PGSQL.5432"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(
        self,
        database: str = "postgres",
        host: str | None = None,
        port: int = 5432,
        user: str | None = None,
    ) -> str:
        where = f"host={host or self.directory}&port={port}"
        return f"postgresql://{user or self.user}@/{database}?{where}"

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Returns when it answers."""
        process = self._process = self._starter.submit(self._spawn).result()
        deadline = time.monotonic() + timeout_seconds
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)
        if not self.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{self.user}'"):
            self.execute(f"CREATE ROLE {self.user} LOGIN")

    def stop(self) -> None:
        """`pg_ctl stop -m fast`: sessions are told."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """`pg_ctl stop -m immediate`: as after a crash."""
        self._end(signal.SIGQUIT)

    def standby(self) -> PostgresServer:
        """A running copy of this one, told of every commit before the commit is acknowledged."""
        other = PostgresServer(self)
        try:
            other.start()
            self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + 60
            while not self.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"it does not stream: {other.log.read_text()[-2000:]}")
                time.sleep(0.02)
        except BaseException:
            other.remove()
            raise
        return other

    def promote(self) -> None:
        """A standby becomes the primary; when this returns it takes writes."""
        self.execute("SELECT pg_promote(true, 60)")

    def remove(self) -> None:
        self._maker.shutdown(cancel_futures=True)
        if self._process is not None:
            self.kill()
        self._starter.shutdown()
        shutil.rmtree(self.directory, ignore_errors=True)

    def fresh(self, template: str = "template0") -> str:
        """The address of a new database, a copy of `template` (which nobody may be using)."""
        made = self._next.pop(template, None)
        if made is None or made.exception() is not None:  # the server was killed meanwhile
            made = self._maker.submit(self._make, template)
        name = made.result()
        self._next[template] = self._maker.submit(self._make, template)
        return self.url(name)

    def _make(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        # Copying files beats logging pages for the few megabytes of an empty database.
        self.execute(
            f'CREATE DATABASE "{name}" OWNER {self.user} TEMPLATE "{template}" STRATEGY FILE_COPY'
        )
        return name

    def drop(self, url: str) -> None:
        name = url.partition("?")[0].rpartition("/")[2]
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        import psycopg

        address = self.url(database, user=self.administrator)
        with psycopg.connect(address, autocommit=True) as conn:
            cursor = conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [self.binaries / "postgres", "-D", self._data, "-k", self.directory, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                preexec_fn=_die_with_parent,
                **self._identity,
            )

    def _answers(self) -> bool:
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None


def _find_binaries() -> Path:
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(Path(p).parts[4])
    )
    which = shutil.which("initdb")
    if not found and not which:
        raise LookupError("PostgreSQL is not installed (Debian: apt install postgresql)")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise LookupError("psycopg is not installed: pip install 'windlass[postgres]'") from None
    return Path(found[-1] if found else str(which)).parent


def _identity() -> dict[str, Any]:
    """Who runs it: ourselves, or somebody with a name when we are root (initdb refuses root)."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise LookupError("we are root, and there is no user to run PostgreSQL as")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG
