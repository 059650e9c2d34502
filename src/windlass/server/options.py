"""What a server can be told: its flags, and the settings they make."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windlass.core.errors import InvalidInput
from windlass.core.strict import format_duration, parse_bytes, parse_duration_ms
from windlass.scheduler.events import Rules
from windlass.server.http import base_path
from windlass.server.settings import DAY_MS, Oidc, Settings
from windlass.server.storage import opening as storage


def settings_of(options: argparse.Namespace, home: Path, port: int, local_port: int) -> Settings:
    """Raises InvalidInput when the flags do not go together; the ports are those listened on."""
    return Settings(
        home=home, host=options.host, port=port, database=options.database,
        fake_nodes=options.fake_nodes, fake_gpus=options.fake_gpus, ttl_ms=options.ttl,
        isolation=options.isolation, uids=options.isolation_uids, job_disk=options.job_disk,
        artifact_bytes=options.artifact_bytes,
        storage=options.storage, storage_cache_ms=options.storage_cache,
        hosts=tuple(options.allow_host), loops=options.loops != "off", insecure=options.insecure,
        lease_ms=options.lease, tls=options.tls_cert is not None, local_port=local_port,
        public_url=options.public_url, base_path=options.base_path, proxies=tuple(options.proxy),
        session_idle_ms=options.session_idle, session_age_ms=options.session_age,
        oidc=_oidc(options), currency=options.currency, scheduling=_scheduling(options),
    )  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """Refuse what would be open to others by mistake. Raises InvalidInput."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key go together")
    for path in (options.tls_cert, options.tls_key):
        if path is not None and not os.access(path, os.R_OK):
            raise InvalidInput(f"{path} cannot be read")
    if not loopback(options.host) and options.tls_cert is None and not options.insecure:
        raise InvalidInput(
            f"{options.host} can be reached from other machines, "
            "and this server would speak plain HTTP there",
            hint="give it --tls-cert and --tls-key, or put TLS in front of it and bind to "
            "127.0.0.1, or add --insecure if the network is yours alone",
        )
    said = urlsplit(options.public_url).path.rstrip("/")
    if said and options.base_path and said != options.base_path:
        raise InvalidInput(
            f"--public-url ends in {said}, --base-path is {options.base_path}: give one, or both "
            "the same"
        )
    _oidc(options)
    if options.storage:
        storage.check(options.storage)


def loopback(host: str) -> bool:
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


def _currency(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{1,10}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: a word such as EUR")
    return text


def _duration(text: str) -> int:
    try:
        return int(parse_duration_ms(text))
    except Exception as err:
        raise argparse.ArgumentTypeError(f"{text!r}: {err}") from err


def _size(text: str) -> int:
    try:
        found = int(parse_bytes(text))
    except Exception as err:
        raise argparse.ArgumentTypeError(f"{text!r}: {err}") from err
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a size is like 200GiB; 0 is no bound")
    return found


def _whole_size(text: str) -> int:
    found = _size(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a size is like 64GiB")
    return found


def _lease(text: str) -> int:
    found = _duration(text)
    if not 1_000 <= found <= 3_600_000:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1s to 1h")
    return found


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m windlass.server", description="One server process. `windlass up` starts it."
    )
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
    parser.add_argument(
        "--currency", type=_currency, default=os.environ.get("WINDLASS_CURRENCY") or "USD",
        help="what prices, costs and budgets are in; nothing is converted",
    )  # fmt: skip
    for flag, kind, default, words in _SESSIONS:
        parser.add_argument(flag, type=kind, help=words, default=default)
    parser.add_argument(
        "--isolation", type=_one_of("auto", "0", "1"),
        default=os.environ.get("WINDLASS_ISOLATION") or "auto",
        help="how far jobs are kept apart at least; auto: 1 once several people share the server",
    )  # fmt: skip
    parser.add_argument(
        "--isolation-uids", type=_uids, default="200000-265535",
        help="the users that jobs of level 1 run as: a range that nobody else uses",
    )  # fmt: skip
    parser.add_argument(
        "--job-disk", type=_size, default=os.environ.get("WINDLASS_JOB_DISK") or "0",
        help="the most that a job may take of a node's disk (200GiB); 0: no bound but its own",
    )  # fmt: skip
    parser.add_argument(
        "--artifact-bytes", type=_whole_size, metavar="SIZE",
        default=os.environ.get("WINDLASS_ARTIFACT_BYTES") or "64GiB",
        help="the most that one file of a run or of a model may have",
    )  # fmt: skip
    parser.add_argument(
        "--storage", metavar="URL", default=os.environ.get("WINDLASS_STORAGE", ""),
        help="s3://bucket/prefix or another store (or a folder) for code, outputs, checkpoints "
        "and logs",
    )  # fmt: skip
    parser.add_argument(
        "--storage-cache", type=_duration, metavar="TIME",
        default=os.environ.get("WINDLASS_STORAGE_CACHE") or "1h",
        help="what lies there stays on this disk too until nobody used it for so long",
    )  # fmt: skip
    _add_oidc(parser)
    for flag, kind, default, words in SCHEDULER:
        given = os.environ.get("WINDLASS_" + flag[2:].upper().replace("-", "_"))
        parser.add_argument(flag, type=kind, help=words, default=given or default)
    return parser


def _add_oidc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proxy", action="append", default=[],
        help="the address of a reverse proxy whose X-Forwarded-For is believed",
    )  # fmt: skip
    parser.add_argument(
        "--oidc-issuer", type=_issuer, default="", help="OpenID issuer whose accounts may log in"
    )
    parser.add_argument("--oidc-client-id", default="", help="this server's name there")
    parser.add_argument(
        "--oidc-client-secret-file", type=Path, help="and its secret, in a file of mode 0600"
    )
    parser.add_argument(
        "--oidc-claim", default="email", help="what of the issuer's word names the user"
    )
    parser.add_argument(
        "--oidc-domain", action="append", default=[], help="only mail addresses of this domain"
    )
    parser.add_argument(
        "--oidc-create", action="store_true", help="make a user for an account that is nobody's"
    )


def _oidc(options: argparse.Namespace) -> Oidc | None:
    if not options.oidc_issuer:
        if options.oidc_client_id or options.oidc_client_secret_file:
            raise InvalidInput("--oidc-client-id needs --oidc-issuer")
        return None
    path: Path | None = options.oidc_client_secret_file
    if not options.oidc_client_id or path is None:
        raise InvalidInput("--oidc-issuer needs --oidc-client-id and --oidc-client-secret-file")
    if options.oidc_claim == "email" and options.oidc_create and not options.oidc_domain:
        raise InvalidInput("--oidc-create needs --oidc-domain: whose addresses become users?")
    try:
        mode = path.stat().st_mode & 0o777
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidInput(f"{path} cannot be read: {err}") from err
    if os.name == "posix" and mode & 0o077:
        raise InvalidInput(f"{path} is readable by others (mode {mode:o})", hint="chmod 600 it")
    if not secret:
        raise InvalidInput(f"{path} is empty")
    return Oidc(
        issuer=options.oidc_issuer, client_id=options.oidc_client_id, client_secret=secret,
        claim=options.oidc_claim, domains=tuple(d.lower() for d in options.oidc_domain),
        create=options.oidc_create,
    )  # fmt: skip


def _uids(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 1000 <= int(first) <= int(last) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r}: such as 200000-265535")
    return int(first), int(last)


def _issuer(text: str) -> str:
    return _url(text, plain="of an issuer on this machine") if text else ""


def _public(text: str) -> str:
    if not text:
        return ""
    _base_path(urlsplit(text).path)
    return _url(text, plain="of loopback").rstrip("/")


def _base_path(text: str) -> str:
    try:
        return base_path.checked(text)
    except InvalidInput as err:
        raise argparse.ArgumentTypeError(err.message) from err


def _url(text: str, plain: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise argparse.ArgumentTypeError(f"{text!r}: such as https://windlass.example")
    if parts.scheme == "http" and not loopback(parts.hostname):
        raise argparse.ArgumentTypeError(f"{text!r}: https, but for the address {plain}")
    return text


def _age(text: str) -> int:
    found = _duration(text)
    if not 1_000 <= found <= 400 * DAY_MS:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1s to 400d")
    return found


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
SCHEDULER: tuple[tuple[str, Any, str, str], ...] = (
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

_SESSIONS: tuple[tuple[str, Any, Any, str], ...] = (
    ("--tls-cert", Path, None, "certificate (PEM, with its chain): speak TLS on this port"),
    ("--tls-key", Path, None, "its private key (PEM)"),
    ("--public-url", _public, "", "the address that people use, where it is not host and port"),
    ("--base-path", _base_path, "", "what all its paths begin with behind a proxy: /windlass"),
    ("--session-idle", _age, "12h", "a browser that was away for so long must log in again"),
    ("--session-age", _age, "7d", "and in any case after this"),
)
