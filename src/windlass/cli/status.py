"""`windlass status`: what runs here."""

from __future__ import annotations

import shutil

import click

from windlass.cli import moments, output
from windlass.cli.apart import in_force
from windlass.cli.node import summary
from windlass.cli.session import WORDS, Session, verb
from windlass.client.nodes import Node
from windlass.client.places import data_dir


@verb("status", outputs=WORDS)
def command(session: Session) -> None:
    """What runs here: address, version, nodes, jobs."""
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
    isolation = status.get("isolation") or {}
    if isolation:
        how_far, what_is_read = in_force(isolation)
        click.echo(f"  isolation {how_far}")
        click.echo(f"            {what_is_read}")
    if status.get("home"):
        click.echo(f"  home      {status['home']} · database {status.get('database')}")
    if "disk" in status:
        click.echo(f"  disk      {output.megabytes(status['disk']['free_bytes'])} free")
