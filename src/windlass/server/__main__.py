"""`python -m windlass.server`: one server process. `windlass up` starts it."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from windlass import __version__
from windlass.core.errors import InvalidInput, WindlassError
from windlass.server.options import check, parser, settings_of
from windlass.server.private import write_private
from windlass.server.settings import Settings


def main() -> int:
    gc.disable()  # until it answers: what is made at the start stays
    options = parser().parse_args()
    os.umask(0o077)
    home = Path(options.home).expanduser().absolute()
    try:
        check(options)
        tls = None if options.tls_cert is None else _tls(options.tls_cert, options.tls_key)
    except InvalidInput as err:
        _complain(err)
        return 2
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    logging.basicConfig(
        level=os.environ.get("WINDLASS_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        listening = _listen(options.host, options.port)
        local = None if tls is None else _listen("127.0.0.1", 0)
    except OSError as err:
        print(
            f"windlass: cannot listen on {options.host}:{options.port}: {err.strerror}",
            file=sys.stderr,
        )
        return 1
    ports = [0 if each is None else each.getsockname()[1] for each in (listening, local)]
    settings = settings_of(options, home, *ports)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, listening, local, tls, _told(options, ports[0])))
    except WindlassError as err:
        _complain(err)
        return 1
    return 0


def _complain(err: WindlassError) -> None:
    hint = f"\n  {err.hint}" if err.hint else ""
    print(f"windlass: {err.message}{hint}", file=sys.stderr)


def _tls(cert: Path, key: Path) -> ssl.SSLContext:
    """Raises InvalidInput for files that are no certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as err:
        raise InvalidInput(f"{cert} and {key} are no certificate and its key: {err}") from err
    return context


def _server_class() -> Any:
    """uvicorn's server, but for signals: it would raise them again once it has ended, before the
    parts are closed."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server


async def _serve(
    settings: Settings,
    listening: socket.socket,
    local: socket.socket | None,
    tls: ssl.SSLContext | None,
    told: dict[str, Any],
) -> None:
    sys.modules["pydantic.v1"] = None  # type: ignore[assignment]  # FastAPI would look into it
    from windlass.server.app import create_app, running
    from windlass.server.http.connections import allow_many, serving

    room = allow_many()
    async with running(settings, _worker_command(settings.home)) as parts:
        app = create_app(parts)
        servers = [(_server_class()(serving(app, settings, room, tls)), listening)]
        if local is not None:
            servers.append((_server_class()(serving(app, settings, room)), local))
        _obey_signals([server for server, _ in servers])
        tasks = [asyncio.create_task(server.serve(sockets=[where])) for server, where in servers]
        while not all(s.started for s, _ in servers) and not any(t.done() for t in tasks):
            await asyncio.sleep(0.005)
        gc.freeze()  # what is here now stays: the collector need not walk it at any turn
        gc.enable()
        gc.set_threshold(20_000, 20, 50)
        note = settings.home / "server.json"
        write_private(note, json.dumps({**_about(settings), "settings": told}))
        logging.getLogger("windlass.server").info(
            "%s answers at %s", __version__, settings.address
        )
        try:
            await asyncio.gather(*tasks)
        finally:
            note.unlink(missing_ok=True)


def _obey_signals(servers: Sequence[Any]) -> None:
    def leave() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)


def _about(settings: Settings) -> dict[str, object]:
    """What others need to find this process, and to know that it is this one."""
    import psutil

    boot_id = Path("/proc/sys/kernel/random/boot_id")
    stat = Path("/proc/self/stat")
    start: float = psutil.Process().create_time()
    if stat.exists():
        start = int(stat.read_text().rpartition(")")[2].split()[19])
    return {
        "pid": os.getpid(),
        "start_time": start,
        "boot_id": boot_id.read_text().strip() if boot_id.exists() else "",
        "url": settings.url,
        "version": __version__,
    }


def _told(options: argparse.Namespace, port: int) -> dict[str, Any]:
    """The settings that `windlass up` knows, so that it can say when others are asked for."""
    names = (
        "host", "fake_nodes", "fake_gpus", "database", "storage", "isolation", "tls_cert",
        "tls_key", "public_url", "base_path",
    )  # fmt: skip
    found = {name: getattr(options, name) for name in names}
    return {"port": port} | {
        name: str(value) if isinstance(value, Path) else value for name, value in found.items()
    }


def _worker_command(home: Path) -> list[str]:
    """The worker as one file in `home`, packed anew when this release's differs."""
    packed = home / "worker.pyz"
    subprocess.run(
        [sys.executable, "-m", "windlass.worker.pack", str(packed)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return [sys.executable, "-I", "-S", str(packed)]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    return listening


if __name__ == "__main__":
    sys.exit(main())
