"""`windlass debug`: look into a running job without changing its code."""

from __future__ import annotations

import base64
import time
from typing import Any

import click

from windlass.cli.session import WORDS, Session, job_argument, verb
from windlass.client.http import path_of
from windlass.core.errors import WindlassError


@click.group("debug")
def command() -> None:
    """Look into a running job: stack, profile, attach."""


def _rank(function: Any) -> Any:
    return click.option("--rank", type=click.IntRange(0), help="Only this rank.")(function)


@verb("stack", outputs=WORDS, group=command)
@_rank
@job_argument()
def stack(session: Session, job: str, rank: int | None) -> None:
    """Where every rank is now: its Python stack."""
    answer = session.client.jobs.debug(session.ref(job), "stack", rank=rank)
    if session.form != "table":
        session.one(answer)
        return
    for item in answer.get("ranks") or ():
        click.echo(f"rank {item['rank']}")
        click.echo("\n".join("  " + line for line in str(item.get("text", "")).splitlines()))


@verb("profile", outputs=WORDS, group=command)
@_rank
@click.option("--seconds", type=click.IntRange(1, 600), default=10, help="Sample for so long.")
@click.option("--out", metavar="PREFIX", default="profile", help="Files: PREFIX-RANK.svg.")
@click.option("--trace", is_flag=True, help="By torch's or TensorFlow's own profiler.")
@job_argument()
def profile(
    session: Session, job: str, rank: int | None, seconds: int, out: str, trace: bool
) -> None:
    """A flame graph of each rank, as SVG files; also kept with the job, below profiles/.

    With --trace, the operators, kernels and memory that the profiler of torch, or of TensorFlow,
    sees in every process that has imported it: for `windlass tb`; torch's also for
    chrome://tracing and Perfetto.
    """
    ref = session.ref(job)
    if trace:
        _trace(session, ref, rank, seconds, out)
        return
    session.say(f"sampling for {seconds} s …")
    answer = session.client.jobs.debug(ref, "profile", rank=rank, seconds=seconds)
    files = []
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for item in answer.get("ranks") or ():
        path = f"{out}-{item['rank']}.svg"
        if item.get("svg"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(item["svg"])
            name = f"{moment}-rank-{item['rank']}.svg"
            kept = keep(session, ref, f"profiles/{name}", item["svg"].encode())
            files.append({"rank": item["rank"], "file": path, "artifact": kept})
        else:
            session.say(f"rank {item['rank']}: {item.get('text') or 'no samples'}")
    if session.form != "table":
        session.one({"ranks": files})
        return
    for entry in files:
        click.echo(entry["file"])


def _trace(session: Session, ref: str, rank: int | None, seconds: int, out: str) -> None:
    session.say(f"tracing for {seconds} s …")
    answer = session.client.jobs.debug(ref, "trace", rank=rank, seconds=seconds)
    files = []
    for item in answer.get("ranks") or ():
        data = base64.b64decode(item.get("data") or "")
        if item.get("error"):
            session.say(f"rank {item['rank']}, process {item['pid']}: {item['error']}")
        elif not data:
            session.say(f"{item['file']} is large: it is among the job's files when it has ended")
        else:
            end = "xplane.pb" if item["file"].endswith(".xplane.pb") else "pt.trace.json.gz"
            path = f"{out}-{item['rank']}-{item['pid']}.{end}"
            with open(path, "wb") as file:
                file.write(data)
            kept = keep(session, ref, item["file"], data)
            files.append({"rank": item["rank"], "file": path, "artifact": kept})
    if not answer.get("ranks"):
        raise click.ClickException("; ".join(answer.get("errors") or ()) or "no rank answered")
    if session.form != "table":
        session.one({"ranks": files})
        return
    for entry in files:
        click.echo(entry["file"])


def keep(session: Session, ref: str, path: str, data: bytes) -> str | None:
    """Beside the job's other files, where those who look later find it; its path there."""
    try:
        session.client.http.call(
            "PUT", path_of("runs", ref, "artifacts", *path.split("/")), data=data
        )
    except WindlassError as err:
        session.say(f"not kept with the job: {err.message}")
        return None
    return path


@verb("attach", outputs=WORDS, group=command)
@_rank
@job_argument()
def attach(session: Session, job: str, rank: int | None) -> None:
    """Open a debugger port in a rank, for an IDE."""
    answer = session.client.jobs.debug(session.ref(job), "attach", rank=rank)
    if session.form != "table":
        session.one(answer)
        return
    for item in answer.get("ranks") or ():
        if item.get("port"):
            click.echo(f"rank {item['rank']}  {item.get('host')}:{item.get('port')}")
        else:
            session.say(f"rank {item['rank']}: {item.get('text') or 'could not be attached to'}")
    session.say('in VS Code: {"type": "debugpy", "request": "attach", "connect": {host, port}}')
