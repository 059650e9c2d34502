"""`windlass model`: versions of models that never change, and aliases that move between them."""

from __future__ import annotations

import os
from typing import Any

import click

from windlass.cli import output
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.core.errors import InvalidInput
from windlass.core.modelrefs import parse_ref

HEAD = ["NAME", "VERSIONS", "NEWEST", "ALIASES", "CHANGED"]
VERSIONS = ["VERSION", "ALIASES", "STAGE", "FORMAT", "SIZE", "FROM", "USER", "CREATED"]


@click.group("model")
def command() -> None:
    """Models: register, name by alias, show, compare, download.

    NAME@ALIAS, NAME@3 or NAME (the newest) is a version. Versions never change; aliases move.
    """


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """All models of the project."""
    found = session.client.models.list()
    rows = [
        [each["name"], each["versions"], each["newest"], _aliases(each["aliases"]),
         each["changed"]]
        for each in found
    ]  # fmt: skip
    session.items(found, HEAD, rows)
    if session.plain and not found:
        session.say("no models; `windlass model register JOB best.pt --as NAME` makes one")


@verb("show", outputs=OBJECTS, group=command)
@click.argument("model", metavar="NAME[@ALIAS]")
def show(session: Session, model: str) -> None:
    """A model with its versions and aliases, or one version with its files and where it came
    from."""
    name, which = parse_ref(model)
    if which:
        found = session.client.models.version(model)
        if not session.one(found):
            _draw_version(found)
        return
    found = session.client.models.get(name)
    if session.one(found):
        return
    click.echo(f"{found['name']}  {found['description']}".rstrip())
    output.print_table(VERSIONS, [_row(each) for each in found["listed"]], colour=None)
    if found["moves"]:
        click.echo("\naliases moved:")
        for move in found["moves"][:20]:
            before, after = (move[side] or "nowhere" for side in ("before", "after"))
            click.echo(f"  {move['at']}  {move['alias']}: {before} → {after}  by {move['user']}")


@verb("register", outputs=OBJECTS, group=command)
@click.argument("what", metavar="JOB|FILE|DIR")
@click.argument("path", metavar="[PATH]", default="")
@click.option("--as", "name", metavar="NAME", required=True, help="The model's name.")
@click.option("--alias", "aliases", metavar="ALIAS", multiple=True, help="Put it there at once.")
@click.option("--description", default="", help="What people should know of this version.")
@click.option("--tag", "tags", metavar="KEY=VALUE", multiple=True, help="For this version.")
def register(
    session: Session, what: str, path: str, name: str, aliases: tuple[str, ...],
    description: str, tags: tuple[str, ...],
) -> None:  # fmt: skip
    """Make a new version: of what a job has as artefacts, or of files here.

    \b
    Examples:
      windlass model register - best.pt --as digits        (of the last job)
      windlass model register ./export --as digits --alias champion
    """
    from windlass.client.models import named

    about = {"description": description, "tags": named(tags), "aliases": list(aliases)}
    models = session.client.models
    if not path and what != "-" and os.path.exists(what):
        found = models.register_files(name, what, **about)
    else:
        found = models.register_run(name, session.ref(what), path, **about)
    if not session.one({"name": f"{found['model']}@{found['version']}", **found}):
        click.echo(f"{found['model']}@{found['version']}  {found['digest'][:12]}")
    if found["warning"]:
        session.say(found["warning"])


@verb("alias", outputs=OBJECTS, group=command)
@click.argument("name", metavar="NAME")
@click.argument("version", metavar="VERSION", type=int)
@click.argument("alias", metavar="ALIAS")
def alias(session: Session, name: str, version: int, alias: str) -> None:
    """Put an alias at a version.

    Staging, Production, Archived and None are the stages: the version that was in Staging or
    Production before is archived.
    """
    found = session.client.models.alias(name, version, alias)
    if not session.one(found):
        click.echo(f"{name}@{alias} is version {found['version']}")


@verb("unalias", outputs=WORDS, group=command)
@click.argument("name", metavar="NAME")
@click.argument("alias", metavar="ALIAS")
def unalias(session: Session, name: str, alias: str) -> None:
    """Take an alias away; the version stays."""
    session.client.models.unalias(name, alias)
    session.say(f"{name} has no alias {alias} any more")


@verb("get", outputs=OBJECTS, group=command)
@click.argument("model", metavar="NAME@ALIAS")
@click.argument("folder", metavar="[DIR]", default="")
def get(session: Session, model: str, folder: str) -> None:
    """Download a version into a folder (by default ./NAME). Digests are checked; what was cut
    goes on where it stopped when you ask again."""
    name, _ = parse_ref(model)
    target = folder or name
    found = session.client.models.download(model, target)
    if not session.one({**found, "folder": target}):
        click.echo(
            f"{found['model']}@{found['version']}  {found['files']} files, "
            f"{output.megabytes(found['bytes'])} in {target}"
        )
    if found["warning"]:
        session.say(found["warning"])


@verb("diff", outputs=OBJECTS, group=command)
@click.argument("one", metavar="NAME@ALIAS")
@click.argument("other", metavar="NAME@ALIAS")
def diff(session: Session, one: str, other: str) -> None:
    """What differs between two versions: files, format, where they came from."""
    from windlass.client.models import compare

    models = session.client.models
    found = compare(models.version(one), models.version(other))
    if session.one(found):
        return
    if found["same"]:
        click.echo(f"{found['versions'][0]} and {found['versions'][1]} hold the same files")
    for name, (before, after) in found["fields"].items():
        click.echo(f"{name}: {_plain(before)} → {_plain(after)}")
    changed = [file for file in found["files"] if file["change"] != "same"]
    if changed:
        rows = [[each["path"], each["change"], each["before"], each["after"]] for each in changed]
        output.print_table(["FILE", "CHANGE", "BEFORE", "AFTER"], rows, colour=None)


@verb("rm", outputs=WORDS, group=command)
@click.argument("model", metavar="NAME[@VERSION]", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="NAME alone: with all its versions.")
def rm(session: Session, model: tuple[str, ...], everything: bool) -> None:
    """Remove versions, or with --all whole models. Numbers are not given again."""
    for each in model:
        name, which = parse_ref(each)
        if not which and not everything:
            raise InvalidInput(
                f"{name} has all its versions: name one, as {name}@3",
                hint=f"windlass model rm --all {name} removes them all",
            )
        session.client.models.delete(name, which)
        session.say(f"removed {each}")


def _draw_version(found: dict[str, Any]) -> None:
    click.echo(f"{found['model']}@{found['version']}  {found['description']}".rstrip())
    facts = {
        "digest": found["digest"], "format": found["format"],
        "size": f"{output.megabytes(found['bytes'])} in {found['files']} files",
        "aliases": ", ".join(found["aliases"]), "stage": found["stage"],
        "tags": ", ".join(f"{key}={value}" for key, value in found["tags"].items()),
        "registered": f"{found['created']} by {found['user']}", "from": _origin(found),
    }  # fmt: skip
    for name, value in facts.items():
        if value and value != "None":
            click.echo(f"  {name:<11}{output.tame(str(value))}")
    for data in found["lineage"].get("data", ()):
        click.echo(f"  {'data':<11}{output.tame(data['name'])} ({data['digest']})")
    if found["warning"]:
        click.echo(f"  {found['warning']}: {', '.join(found['unsafe'][:5])}")
    rows = [[each["path"], each["size"], each["digest"][:12]] for each in found["listed"][:50]]
    output.print_table(["FILE", "SIZE", "DIGEST"], rows, colour=None)


def _origin(found: dict[str, Any]) -> str:
    lineage = found["lineage"]
    job = lineage.get("job")
    if job:
        return f"job {job['name']} ({job['id'][:12]}): {job['command']}"
    if found["run"]:
        return f"run {found['run']}"
    return "files that were sent" if lineage.get("uploaded") else ""


def _row(each: dict[str, Any]) -> list[Any]:
    unsafe = " (pickle!)" if each["unsafe"] else ""
    stage = "" if each["stage"] == "None" else each["stage"]
    return [
        each["version"], ", ".join(each["aliases"]), stage, each["format"] + unsafe,
        output.megabytes(each["bytes"]), (each["job"] or each["run"] or "")[:12], each["user"],
        each["created"],
    ]  # fmt: skip


def _aliases(found: dict[str, int]) -> str:
    return ", ".join(f"{alias}={version}" for alias, version in found.items())


def _plain(value: Any) -> str:
    return output.tame(str(value if value not in (None, "", [], {}) else "-"))
