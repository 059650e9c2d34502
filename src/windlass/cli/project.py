"""`windlass project`: tenants, and who is what in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from windlass.cli import moments, output
from windlass.cli.apart import told_when_shared
from windlass.cli.asking import sure
from windlass.cli.completion import complete_project
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.client.config import save, save_context
from windlass.client.projects import Project

ROLES = ("viewer", "member", "maintainer")
HEAD = ["", "NAME", "YOU ARE", "MEMBERS", "JOBS", "AGE"]
PEOPLE = ["USER", "ROLE", "KIND", "SINCE"]


@click.group("project")
def command() -> None:
    """Projects: whose jobs are apart from each other's.

    Viewers look, members run jobs of their own, maintainers change everybody's and the members.
    """


def name_argument(**settings: Any) -> Callable[..., Any]:
    return click.argument("name", metavar="PROJECT", shell_complete=complete_project, **settings)


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The projects you are in; * is the one that commands are about.

    \b
    Examples:
      windlass project ls
      windlass project ls -q
    """
    found = session.client.projects.list()
    here = session.client.whoami()["project"]
    rows = [
        ["*" if each.name == here else "", each.name, each.role or "-", each.members, each.jobs,
         moments.age(each.created)]
        for each in found
    ]  # fmt: skip
    session.items([each.data for each in found], HEAD, rows)
    if session.plain and not found:
        session.say("you are in no project yet: ask an administrator")


@verb("create", outputs=OBJECTS, group=command)
@click.argument("name", metavar="PROJECT")
def create(session: Session, name: str) -> None:
    """A new project, which you maintain. For owners and administrators.

    \b
    Examples:
      windlass project create vision
    """
    _shown(session, session.client.projects.create(name))


@verb("show", outputs=OBJECTS, group=command)
@name_argument()
def show(session: Session, name: str) -> None:
    """One project with its members.

    \b
    Examples:
      windlass project show vision
    """
    _shown(session, session.client.projects.get(name))


@verb("rm", outputs=WORDS, group=command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@name_argument()
def rm(session: Session, name: str, yes: bool) -> None:
    """Remove a project: its jobs are stopped, and nobody sees it any more.

    \b
    Examples:
      windlass project rm vision
    """
    found = session.client.projects.get(name)
    sure(
        f"Remove project {name} with {found.members} members, and stop its {found.jobs} "
        "unfinished jobs?",
        f"{name} has {found.jobs} unfinished jobs",
        yes=yes,
    )
    session.client.projects.delete(name)
    session.say(f"removed {name}")


@verb("use", outputs=WORDS, group=command)
@name_argument()
def use(session: Session, name: str) -> None:
    """Let commands be about this project from now on.

    \b
    Examples:
      windlass project use vision
    """
    session.client.projects.get(name)  # it is there, and you are in it
    context = session.config.get("context").value
    if context:
        values = {**session.config.contexts[context], "project": name}
        path = save_context(context, values, choose=False)
    else:
        path = save("project", name)
    if not session.one({"name": name, "file": str(path)}):
        session.say(f"commands are about {name}")


@verb("members", outputs=LISTS, group=command)
@name_argument()
def members(session: Session, name: str) -> None:
    """Who is in a project, and as what.

    \b
    Examples:
      windlass project members vision
    """
    found = session.client.projects.get(name)
    data = [{"name": each["user"], **each} for each in found.people]
    session.items(data, PEOPLE, _people(found))


@verb("add", outputs=OBJECTS, group=command)
@click.option("--role", type=click.Choice(ROLES), default="member", help="What it may do there.")
@click.option("--service", is_flag=True, help="Make USER as a service account of the project.")
@name_argument()
@click.argument("user")
def add(session: Session, name: str, user: str, role: str, service: bool) -> None:
    """Let a user into a project, or give it another role there.

    \b
    Examples:
      windlass project add vision ann
      windlass project add vision bob --role maintainer
      windlass project add vision nightly --service
    """
    if service:
        with told_when_shared(session):
            made = session.client.projects.create_service(name, user, role)
        if not session.one(made.data):
            session.say(f"made {user}, a service account of {name}")
            session.say(f"its first key: windlass key create --project {name} --user {user}")
        return
    _shown(session, session.client.projects.add(name, user, role))


@verb("remove", outputs=WORDS, group=command)
@name_argument()
@click.argument("user", nargs=-1, required=True)
def remove(session: Session, name: str, user: tuple[str, ...]) -> None:
    """Take users out of a project; their jobs there go on.

    \b
    Examples:
      windlass project remove vision ann
    """
    for each in user:
        session.client.projects.remove(name, each)
        session.say(f"removed {each} from {name}")


def _shown(session: Session, project: Project) -> None:
    if session.one(project.data):
        return
    you = f", you are {project.role}" if project.role else ""
    click.echo(f"{project.name}  {project.jobs} unfinished jobs{you}")
    output.print_table(PEOPLE, _people(project), colour=None)


def _people(project: Project) -> list[list[Any]]:
    return [
        [each["user"], each["role"], each["kind"] + (", disabled" if each["disabled"] else ""),
         moments.age(each["added"])]
        for each in project.people
    ]  # fmt: skip
