"""`windlass status`: what runs here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import local, moments, output
from windlass.cli.apart import in_force
from windlass.cli.node import summary
from windlass.cli.session import WORDS, Session, verb
from windlass.client.nodes import Node
from windlass.client.places import data_dir

_SHOWN = 10


def trouble_lines(troubles: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the server's loops fail on: which object, how often, since when, why."""
    lines = []
    for each in troubles[:_SHOWN]:
        of, times = each["object"] or "whole turns", each["times"]
        often = f"{times} time{'s' if times != 1 else ''}, {moments.age(each['since'])}"
        words = output.tame(f"{each['loop']} fails on {of} ({often}): {each['error']}")
        lines.append(f"  trouble   {words}")
    if len(troubles) > _SHOWN:
        lines.append(f"  trouble   and {len(troubles) - _SHOWN} more: -o json has them")
    return lines


@verb("status", outputs=WORDS)
def command(session: Session) -> None:
    """What runs here: address, version, nodes, jobs."""
    if session.config.local:
        local.demand_answers()
    status = session.client.status()
    home = data_dir()
    if session.config.local and home.exists():
        disk = shutil.disk_usage(home)
        status["disk"] = {"free_bytes": disk.free, "total_bytes": disk.total}
    if session.one(status):
        return
    click.echo(f"windlass {status.get('version')} · {status.get('url')} · pid {status.get('pid')}")
    nodes = [Node.read(item) for item in status.get("nodes") or ()]
    click.echo(f"  nodes     {summary(nodes)}")
    for node in nodes:
        if node.state == "paused":
            click.echo(f"  paused    {node.name}: {output.tame(node.reason)}")
    jobs = {name: count for name, count in (status.get("jobs") or {}).items() if count}
    click.echo(f"  jobs      {', '.join(f'{n} {s}' for s, n in jobs.items()) or 'none'}")
    if status.get("started"):
        click.echo(f"  up for    {moments.age(status['started'])}")
    for words in status.get("why") or ():
        click.echo(f"  not ready {output.tame(words)}")
    for line in trouble_lines(status.get("troubles") or ()):
        click.echo(line)
    isolation = status.get("isolation") or {}
    if isolation:
        how_far, what_is_read = in_force(isolation)
        click.echo(f"  isolation {how_far}")
        click.echo(f"            {what_is_read}")
    if status.get("home"):
        click.echo(f"  home      {status['home']} · database {status.get('database')}")
    if "disk" in status:
        click.echo(f"  disk      {output.megabytes(status['disk']['free_bytes'])} free")
