"""Claim: MLflow's wire costs our server at most a tenth of what it costs MLflow's own with one
worker (SQLite both), and a hundredth of it with its users' passwords on; ours always knows who
calls.

`runs/log-metric` is sent raw, so that the client costs little: the server's CPU for each by one
caller, and how many are taken from eight. `mlflow.log_metric` of the real client is timed
against each.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.load import Caller, flood
from benchmarks.measure import (
    Row,
    at_least,
    at_most,
    folder,
    median,
    milliseconds,
    per_second,
    script,
)
from windlass.testing import mlflow_server
from windlass.testing.environments import environment
from windlass.testing.mlflow_server import MlflowServer
from windlass.testing.people import People
from windlass.testing.platform import Platform

ROUNDS = 5
CALLS = 300
OUR_CALLS = 2000
"""More of ours: a clock tick is ten milliseconds."""
SLOW_CALLS = 20
"""Of the server that checks a password at each call."""
CLIENTS = 8
PASSWORD = "of the benchmark"
API = "/api/2.0/mlflow/"
TIMED = """
import sys, time
import mlflow
times = []
with mlflow.start_run():
    for step in range(int(sys.argv[1])):
        began = time.perf_counter()
        mlflow.log_metric("loss", 1.0, step=step)
        times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""


@dataclass
class Contestant:
    name: str
    port: int
    prefix: str
    authorization: str
    pids: Callable[[], list[int]]
    calls: int
    env: dict[str, str]
    run_id: str = ""
    step: int = 0

    def begin(self) -> None:
        made = httpx.post(
            f"http://127.0.0.1:{self.port}{self.prefix}{API}runs/create", trust_env=False,
            timeout=60, json={"experiment_id": "0", "start_time": 1},
            headers={"Authorization": self.authorization} if self.authorization else {},
        )  # fmt: skip
        made.raise_for_status()
        self.run_id = made.json()["run"]["info"]["run_id"]

    def requests(self, count: int) -> list[bytes]:
        return [self._request() for _ in range(count)]

    def _request(self) -> bytes:
        self.step += 1
        body = json.dumps({
            "run_id": self.run_id, "key": "loss", "value": 0.5, "step": self.step,
            "timestamp": 1_700_000_000_000 + self.step,
        }).encode()  # fmt: skip
        head = (
            f"POST {self.prefix}{API}runs/log-metric HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        )
        if self.authorization:
            head += f"Authorization: {self.authorization}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def one_by_one(self) -> tuple[float, float]:
        """(server's CPU, seconds) of one call by one caller."""
        caller = Caller(self.port)
        try:
            requests = self.requests(self.calls)
            before = sum(map(_cpu_seconds, self.pids()))
            spent = [caller.call(request)[0] for request in requests]
            cpu = (sum(map(_cpu_seconds, self.pids())) - before) / self.calls
        finally:
            caller.close()
        return cpu, median(spent)

    def many(self) -> float:
        """Calls per second that eight callers get through."""
        return flood(self.port, self.requests(4 * self.calls), CLIENTS)

    def by_client(self, python: Path, place: Path) -> float:
        """Seconds of one `mlflow.log_metric`, the median."""
        path = place / "timed.py"
        path.write_text(TIMED)
        done = subprocess.run(
            [str(python), str(path), str(self.calls)], cwd=place, capture_output=True, text=True,
            timeout=300, check=True,
            env={"PATH": os.environ["PATH"], "HOME": str(place), "DO_NOT_TRACK": "true",
                 "GIT_PYTHON_REFRESH": "quiet", **self.env},
        )  # fmt: skip
        return float(done.stdout.split()[-1])


def measure() -> list[Row]:
    with folder() as place, ExitStack() as open_ones:
        python = mlflow_server.newest()
        ours = open_ones.enter_context(_ours(place / "ours"))
        plain = open_ones.enter_context(_theirs(place / "plain"))
        secured = open_ones.enter_context(_theirs(place / "secured", auth=True))
        everyone = (ours, plain, secured)
        for each in everyone:
            each.begin()
            each.one_by_one()
        cpu: dict[str, list[float]] = {}
        alone: dict[str, list[float]] = {}
        rate: dict[str, list[float]] = {}
        client: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            for each in everyone:
                spent, waited = each.one_by_one()
                cpu.setdefault(each.name, []).append(spent)
                alone.setdefault(each.name, []).append(waited)
                rate.setdefault(each.name, []).append(each.many())
                if turn < 2:
                    found = each.by_client(python, place)
                    client.setdefault(each.name, []).append(found)

    def ratio(of: dict[str, list[float]], name: str) -> tuple[float, float]:
        return median(of["ours"]), median(of[name])

    return [
        at_most("log-metric, server CPU (mlflow, 1 worker)", *ratio(cpu, "mlflow"), 0.1,
                milliseconds),
        at_least("log-metric, 8 clients (mlflow, 1 worker)", *ratio(rate, "mlflow"), 10,
                 per_second),
        at_least("log-metric, 8 clients, who calls is checked (mlflow, basic-auth)",
                 *ratio(rate, "mlflow with users"), 100, per_second),
        at_most("log-metric, server CPU (mlflow, basic-auth)", *ratio(cpu, "mlflow with users"),
                0.01, milliseconds),
        at_most("log-metric, one caller, p50 (mlflow, 1 worker)", *ratio(alone, "mlflow"), 1,
                milliseconds),
        at_most("mlflow.log_metric of the real client, p50 (mlflow, 1 worker)",
                *ratio(client, "mlflow"), 1, milliseconds),
        at_most("mlflow.log_metric of the real client, p50 (mlflow, basic-auth)",
                *ratio(client, "mlflow with users"), 1, milliseconds),
    ]  # fmt: skip


def _cpu_seconds(pid: int) -> float:
    """Of the whole process, with threads that have ended: theirs come and go."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _ours(home: Path) -> Iterator[Contestant]:
    with Platform(home) as platform:
        people = People(platform)
        token = people.token(people.owner.inside("default"), "write", name="bench").token
        assert platform.process is not None
        pid = platform.process.pid
        yield Contestant(
            "ours", platform.port, "/mlflow/default", f"Bearer {token}", lambda: [pid], OUR_CALLS,
            {"MLFLOW_TRACKING_URI": f"{platform.url}/mlflow/default",
             "MLFLOW_TRACKING_TOKEN": token},
        )  # fmt: skip


@contextmanager
def _theirs(home: Path, *, auth: bool = False) -> Iterator[Contestant]:
    env: dict[str, str] = {}
    if auth:
        home.mkdir(parents=True)
        (home / "auth.ini").write_text(
            "[mlflow]\ndefault_permission = EDIT\n"
            f"database_uri = sqlite:///{home / 'auth.db'}\n"
            f"admin_username = admin\nadmin_password = {PASSWORD}\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        )
        forms = environment("mlflow-auth", "Flask-WTF", "WTForms", pip_args=("--no-deps",))
        (found,) = (forms.parents[1] / "lib").glob("python*/site-packages")
        env = {"MLFLOW_AUTH_CONFIG_PATH": str(home / "auth.ini"), "PYTHONPATH": str(found)}
    with MlflowServer(home, auth=auth, env=env) as server:
        who = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
        user = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": PASSWORD}
        yield Contestant(
            "mlflow with users" if auth else "mlflow", server.port, "",
            f"Basic {who}" if auth else "", server.pids, SLOW_CALLS if auth else CALLS,
            {"MLFLOW_TRACKING_URI": server.url, **(user if auth else {})},
        )  # fmt: skip


if __name__ == "__main__":
    began = time.perf_counter()
    script(measure)
    print(f"({time.perf_counter() - began:.0f} s)")
