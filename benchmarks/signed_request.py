"""Claim: a signed POST costs the server at most 1.15x the CPU of the same POST unsigned.

A real server process on loopback (uvicorn, the real HTTP layer) with a real SQLite file. The
same route once asks for a signature and spends it in its write, once is public and does the same
write without. The client is another process with everything signed beforehand, so what is
counted is the server's own CPU time. Rounds alternate; the best round of each counts.

    python benchmarks/signed_request.py [requests per round]
"""

import asyncio
import http.client
import json
import multiprocessing
import secrets
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from sqlalchemy import Connection, insert

from windlass.core import signing
from windlass.core.access import Right
from windlass.server.access.calls import Call, spend
from windlass.server.access.sealing import load
from windlass.server.access.service import Access
from windlass.server.access.tables import projects
from windlass.server.http import errors
from windlass.server.http.body import json_body
from windlass.server.http.limits import Limits
from windlass.server.http.marks import require
from windlass.server.store.metadata import metadata
from windlass.server.store.open import open_store
from windlass.testing.small_app import SmallServer, Submit, serving

BODY = json.dumps({"spec": {"run": "python train.py --lr 0.1", "workers": 4}}).encode()
ROUNDS = 6


def serve(home: str, pipe: Pipe) -> None:
    store = asyncio.run(open_store(f"sqlite:///{home}/db", migrate=False, create=metadata))

    async def no_token(digest: str) -> None:
        return None

    access = Access(store, load(Path(home) / "kek"), no_token)
    key = asyncio.run(access.first_start())
    assert key is not None
    app = FastAPI(openapi_url=None)
    app.state.access = access

    def record(conn: Connection, call: Call) -> None:
        spend(conn, call)
        name = secrets.token_hex(16)
        conn.execute(insert(projects).values(id=name, name=name, created_ms=0))

    for path, right in (("/signed", Right.JOB_WRITE), ("/unsigned", Right.PUBLIC)):

        @app.post(path)
        async def submit(
            call: Annotated[Call, Depends(require(right))],
            body: Annotated[Submit, Depends(json_body(Submit))],
        ) -> Submit:
            await store.write(lambda conn: record(conn, call))
            return body

    errors.install(app)
    app.add_middleware(Limits)
    small: Any = SmallServer(app, None, access, key, "", {})  # type: ignore[arg-type]
    with serving(small):
        pipe.send((small.url, key))
        pipe.recv()
    asyncio.run(store.close())


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads, to the nanosecond (the usual counters tick every 10 ms)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def main(requests: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    with tempfile.TemporaryDirectory() as home:
        server = spawn.Process(target=serve, args=(home, there), daemon=True)
        server.start()
        url, key = here.recv()
        assert server.pid is not None
        host = url.removeprefix("http://")
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for path in ("/signed", "/unsigned"):
                calls = []
                for _ in range(requests):
                    headers = {"Host": host, "Content-Type": "application/json"}
                    headers["Idempotency-Key"] = secrets.token_hex(16)
                    if path == "/signed":
                        now_ms = time.time_ns() // 1_000_000
                        headers |= signing.sign(
                            "POST", url + path, headers, BODY, key.access_key, key.secret_key,
                            now_ms,
                        )  # fmt: skip
                    calls.append(headers)
                client = http.client.HTTPConnection(host)
                before = cpu_seconds(server.pid)
                for headers in calls:
                    client.request("POST", path, BODY, headers)
                    answer = client.getresponse()
                    assert answer.status == 200, answer.read()
                    answer.read()
                spent = (cpu_seconds(server.pid) - before) / requests * 1e6
                client.close()
                best[path] = min(best.get(path, spent), spent)
        here.send(None)
        server.join(20)
    print(f"unsigned POST  {best['/unsigned']:7.0f} us of server CPU")
    print(f"signed POST    {best['/signed']:7.0f} us of server CPU")
    print(f"ratio          {best['/signed'] / best['/unsigned']:7.3f}  (goal: at most 1.15)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
