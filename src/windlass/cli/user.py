"""`windlass user`: people and service accounts of the whole server."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli import moments
from windlass.cli.apart import told_when_shared
from windlass.cli.asking import sure
from windlass.cli.project import ROLES
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.client.users import User

ORG_ROLES = ("owner", "admin", "auditor")
HEAD = ["NAME", "KIND", "ROLE", "PROJECTS", "KEYS", "AGE"]


@click.group("user")
def command() -> None:
    """Users of the server: people and service accounts.

    Owners may do everything, admins all but make owners, auditors read everything.
    """


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """Every user.

    \b
    Examples:
      windlass user ls
      windlass user ls -o csv
    """
    found = session.client.users.list()
    session.items([each.data for each in found], HEAD, [_row(each) for each in found])


@verb("create", outputs=OBJECTS, group=command)
@click.option("--service", is_flag=True, help="A program's account, with no password.")
@click.option("--role", type=click.Choice(ORG_ROLES), help="In the organisation.")
@click.option("--in", "inside", metavar="PROJECT", help="A project to be in at once.")
@click.option("--as", "as_", type=click.Choice(ROLES), default="member", help="Its role there.")
@click.option("--key", is_flag=True, help="Make its first key, and print it.")
@click.argument("name")
def create(
    session: Session,
    name: str,
    service: bool,
    role: str | None,
    inside: str | None,
    as_: str,
    key: bool,
) -> None:
    """A new user. For owners and administrators.

    It needs a key (--key, or `windlass key create --user NAME`), or a password.

    \b
    Examples:
      windlass user create ann --in vision --key
      windlass user create carl --role auditor
    """
    client = session.client
    kind = "service" if service else "person"
    with told_when_shared(session):
        made = client.users.create(name, kind=kind, role=role, project=inside, project_role=as_)
    if key:
        from windlass.cli.key import shown

        if inside:
            client.http.project = inside
        shown(session, client.keys.create(user=name))
        return
    _shown(session, made)


@verb("show", outputs=OBJECTS, group=command)
@click.argument("name")
def show(session: Session, name: str) -> None:
    """One user, with the projects it is in.

    \b
    Examples:
      windlass user show ann
    """
    _shown(session, session.client.users.get(name))


@verb("disable", outputs=OBJECTS, group=command)
@click.argument("name")
def disable(session: Session, name: str) -> None:
    """Refuse every credential of a user from now on; its jobs go on.

    \b
    Examples:
      windlass user disable ann
    """
    _shown(session, session.client.users.disable(name))


@verb("enable", outputs=OBJECTS, group=command)
@click.argument("name")
def enable(session: Session, name: str) -> None:
    """Let a user's keys work again; tokens and sessions of before stay dead.

    \b
    Examples:
      windlass user enable ann
    """
    _shown(session, session.client.users.enable(name))


@verb("rm", outputs=WORDS, group=command)
@click.option("--stop-jobs", is_flag=True, help="Stop its jobs; otherwise they go on.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.argument("name")
def rm(session: Session, name: str, stop_jobs: bool, yes: bool) -> None:
    """Remove somebody who has left: keys, tokens and sessions are dead at once, for good.

    Its jobs stay under its name and go on. The name is free once the last of them has ended.

    \b
    Examples:
      windlass user rm ann
      windlass user rm ann --stop-jobs
    """
    session.client.users.get(name)
    jobs = "stop its jobs" if stop_jobs else "let its jobs go on"
    sure(f"Remove user {name} for good, and {jobs}?", f"{name} would be removed", yes=yes)
    left = session.client.users.delete(name, stop_jobs=stop_jobs)
    session.say(f"removed {name}")
    if left:
        session.say(f"{left} of its jobs {'are ending' if stop_jobs else 'go on'}")


@verb("role", outputs=OBJECTS, group=command)
@click.argument("name")
@click.argument("role", type=click.Choice((*ORG_ROLES, "none")))
def role(session: Session, name: str, role: str) -> None:
    """Give a user a role in the organisation, or take it away.

    \b
    Examples:
      windlass user role ann admin
      windlass user role ann none
    """
    _shown(session, session.client.users.set_role(name, None if role == "none" else role))


@verb("password", outputs=OBJECTS, group=command)
@click.argument("name")
def password(session: Session, name: str) -> None:
    """A link where a user sets a new password, good once and for a day.

    \b
    Examples:
      windlass user password ann
    """
    made = session.client.sessions.password_link(name)
    if not session.one(made):
        click.echo(made["url"])
        session.say(f"give it to {name}; it is good once, until {made['expires']}")


@verb("identity", outputs=OBJECTS, group=command)
@click.argument("name")
@click.argument("account", metavar="ACCOUNT")
def identity(session: Session, name: str, account: str) -> None:
    """Say which account of the OpenID issuer is this user, by its mail address.

    \b
    Examples:
      windlass user identity ann ann@example.org
    """
    session.client.sessions.identify(name, account)
    if not session.one({"name": name, "account": account}):
        session.say(f"{account} is {name} from its next login on")


def _shown(session: Session, user: User) -> None:
    if session.one(user.data):
        return
    words = [user.kind]
    words += [f"{user.role} of the organisation"] if user.role else []
    words += [f"of project {user.project}"] if user.project else []
    words += ["disabled"] if user.disabled else []
    click.echo(f"{user.name}  {', '.join(words)}, {user.keys} keys")
    for each in user.projects:
        click.echo(f"  {each['role']} of {each['project']}")


def _row(user: User) -> list[Any]:
    inside = ", ".join(f"{each['project']} ({each['role']})" for each in user.projects)
    kind = user.kind + (", disabled" if user.disabled else "")
    return [user.name, kind, user.role or "", inside, user.keys, moments.age(user.created)]
