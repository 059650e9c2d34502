"""`python -m windlass.server`: one server process. `windlass up` starts it."""

from __future__ import annotations

import argparse
import asyncio
import gc
import ipaddress
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from windlass import __version__
from windlass.core.errors import WindlassError
from windlass.core.strict import format_duration, parse_duration_ms
from windlass.scheduler.events import Rules
from windlass.server.private import write_private
from windlass.server.settings import DAY_MS, Settings


def main() -> int:
    options = _options().parse_args()
    os.umask(0o077)
    home = Path(options.home).expanduser().absolute()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _loopback(options.host) and not options.insecure:
        print(
            f"windlass: {options.host} can be reached from other machines, "
            "and this server speaks plain HTTP.\n"
            "  Put TLS in front of it and bind to 127.0.0.1, "
            "or add --insecure if the network is yours alone.",
            file=sys.stderr,
        )
        return 2
    logging.basicConfig(
        level=os.environ.get("WINDLASS_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        listening = _listen(options.host, options.port)
    except OSError as err:
        print(
            f"windlass: cannot listen on {options.host}:{options.port}: {err.strerror}",
            file=sys.stderr,
        )
        return 1
    settings = Settings(
        home=home, host=options.host, port=listening.getsockname()[1], database=options.database,
        fake_nodes=options.fake_nodes, fake_gpus=options.fake_gpus, ttl_ms=options.ttl,
        hosts=tuple(options.allow_host), loops=options.loops != "off", insecure=options.insecure,
        lease_ms=options.lease, scheduling=_scheduling(options),
    )  # fmt: skip
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, listening))
    except WindlassError as err:
        print(
            f"windlass: {err.message}" + (f"\n  {err.hint}" if err.hint else ""), file=sys.stderr
        )
        return 1
    return 0


def _server_class() -> Any:
    """uvicorn's server, but for signals: it would raise them again once it has ended, before the
    parts are closed."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        def obey_signals(self) -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._leave)

        def _leave(self) -> None:
            self.should_exit = True

    return Server


async def _serve(settings: Settings, listening: socket.socket) -> None:
    import uvicorn

    from windlass.server.app import create_app, running

    async with running(settings, _worker_command(settings.home)) as parts:
        config = uvicorn.Config(
            create_app(parts), log_config=None, access_log=False, http="httptools", loop="none",
            ws="none", lifespan="off", timeout_graceful_shutdown=1, server_header=False,
            date_header=False, proxy_headers=False, timeout_keep_alive=75, backlog=2048,
        )  # fmt: skip
        server = _server_class()(config)
        server.obey_signals()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        # What is here now stays: the collector need not walk it at every turn.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        note = settings.home / "server.json"
        write_private(note, json.dumps(_about(settings)))
        logging.getLogger("windlass.server").info("%s answers at %s", __version__, settings.url)
        try:
            await serving
        finally:
            note.unlink(missing_ok=True)


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


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _scheduling(options: argparse.Namespace) -> Rules:
    return Rules(
        order=options.scheduler_order,
        preemption=options.scheduler_preemption == "on",
        starving_ms=options.scheduler_starving,
        min_run_ms=options.scheduler_min_run,
        preemption_cap=options.scheduler_preemption_cap,
        cool_down_ms=options.scheduler_cool_down,
        reservations=options.scheduler_reservations,
        half_life_ms=options.scheduler_half_life,
    )


def _duration(text: str) -> int:
    try:
        return int(parse_duration_ms(text))
    except Exception as err:
        raise argparse.ArgumentTypeError(f"{text!r}: {err}") from err


def _lease(text: str) -> int:
    found = _duration(text)
    if not 1_000 <= found <= 3_600_000:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1s to 1h")
    return found


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m windlass.server", description=__doc__)
    home = os.environ.get("WINDLASS_HOME") or "~/.windlass"
    parser.add_argument("--home", default=home, help="where everything of this server lives")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7400, help="0 takes a free one")
    parser.add_argument("--database", default=os.environ.get("WINDLASS_DATABASE", ""),
                        help="postgresql://… instead of a SQLite file in home")  # fmt: skip
    parser.add_argument(
        "--fake-nodes", type=int, default=0, help="split this machine into so many nodes"
    )
    parser.add_argument(
        "--fake-gpus", type=int, default=0, help="GPUs that each node pretends to have"
    )
    parser.add_argument(
        "--ttl", type=_duration, default=30 * DAY_MS, help="finished jobs are removed after this"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], help="another name this server answers to"
    )
    parser.add_argument("--loops", choices=("on", "off"), default="on", help="off: API only")
    parser.add_argument(
        "--lease", type=_lease, default="15s",
        help="of several servers one leads; another follows when it is silent for this long",
    )  # fmt: skip
    parser.add_argument(
        "--insecure", action="store_true", help="allow a bind beyond loopback without TLS"
    )
    for flag, kind, default, words in _SCHEDULER:
        given = os.environ.get("WINDLASS_" + flag[2:].upper().replace("-", "_"))
        parser.add_argument(flag, type=kind, help=words, default=given or default)
    return parser


def _one_of(*words: str) -> Callable[[str], str]:
    """Not argparse's `choices`: those do not look at a default, and so at the environment."""

    def word(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text!r}: {' or '.join(words)}")
        return text

    return word


def _from(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: from {least} to {most}")
        return int(text)

    return number


_RULES = Rules()
_SCHEDULER: tuple[tuple[str, Any, str, str], ...] = (
    ("--scheduler-order", _one_of("fair", "fifo"), _RULES.order,
     "fair: who borrows least goes first, then by priority; fifo: by priority alone"),
    ("--scheduler-preemption", _one_of("on", "off"), "on" if _RULES.preemption else "off",
     "off: nothing that runs is ended to make room"),
    ("--scheduler-starving", _duration, format_duration(_RULES.starving_ms),
     "a job that waited longer keeps what it needs from all that rank behind it"),
    ("--scheduler-min-run", _duration, format_duration(_RULES.min_run_ms),
     "nobody is preempted before it ran this long"),
    ("--scheduler-preemption-cap", _from(0, 1_000_000), str(_RULES.preemption_cap),
     "a job that was preempted this often is left alone"),
    ("--scheduler-cool-down", _duration, format_duration(_RULES.cool_down_ms),
     "between two resizes of one elastic job"),
    ("--scheduler-reservations", _from(0, 10_000), str(_RULES.reservations),
     "so many waiting jobs may hold a reservation at once"),
    ("--scheduler-half-life", _duration, format_duration(_RULES.half_life_ms),
     "past use counts half after this long, where shares are equal"),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
