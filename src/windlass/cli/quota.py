"""`windlass quota`: what projects own, lend and borrow; one by one, or as a whole file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from windlass.cli import output, quotafile
from windlass.cli.asking import sure
from windlass.cli.completion import complete_quota
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.client.quotas import Quota, file_of
from windlass.core.errors import InvalidInput

HEAD = ["NAME", "RESOURCE", "USED", "NOMINAL", "BORROW", "LEND", "WEIGHT", "CAPS"]
RESOURCES = ("gpus", "cpus", "memory")


@click.group("quota")
def command() -> None:
    """What projects own, lend and borrow.

    A quota makes jobs wait; it never ends one.
    """


def name_argument(**settings: Any) -> Callable[..., Any]:
    return click.argument("name", metavar="NAME", shell_complete=complete_quota, **settings)


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The quotas: each cohort with its projects, and what is in use.

    -o yaml prints the form that `quota apply` and `windlass simulate` read.

    \b
    Examples:
      windlass quota ls
      windlass quota ls -o yaml > quotas.yaml
    """
    quotas = session.client.quotas.list()
    if session.form == "yaml" and not session.quiet:
        output.print_yaml(file_of(quotas))
        return
    _listed(session, quotas)
    if session.plain and not quotas:
        session.say("no quotas: everybody may use everything. `windlass quota set NAME --gpus 8`")


@verb("show", outputs=OBJECTS, group=command)
@name_argument()
def show(session: Session, name: str) -> None:
    """One quota: what it owns, uses, lends and borrows, and its caps."""
    quota = session.client.quotas.get(name)
    if session.one(quota.data):
        return
    kind = "cohort" if quota.cohort else "project"
    above = f" in cohort {quota.parent}" if quota.parent else ""
    click.echo(f"{quota.name}  {kind}{above}")
    output.print_table(HEAD[1:-1], [row[1:-1] for row in quota_rows(quota, 0)], colour=None)
    for cap in quota.caps:
        click.echo(f"cap: {cap_words(cap)}")
    if quota.reclaim_any:
        click.echo("takes back what it lent from jobs of higher priority too")
    if not quota.exists:
        session.say(f"there is no project {quota.name} yet")


@verb("set", outputs=OBJECTS, group=command)
@click.option("--gpus", metavar="N", help="GPUs it owns; short for --nominal gpus=N.")
@click.option("--cpus", metavar="N", help="CPUs it owns.")
@click.option("--memory", metavar="SIZE", help="Memory it owns, such as 512GiB.")
@click.option("--nominal", multiple=True, metavar="RES=N", help="What it owns: gpus:H200=4.")
@click.option("--borrow", multiple=True, metavar="RES=N", help="At most so much over that.")
@click.option("--lend", multiple=True, metavar="RES=N", help="At most so much of it to others.")
@click.option("--cohort", metavar="NAME", help="The cohort it belongs to; none: by itself.")
@click.option("--as-cohort", is_flag=True, help="It is a cohort, not a project.")
@click.option("--weight", type=float, metavar="W", help="Its weight beside others.")
@click.option(
    "--reclaim-any/--reclaim-lower",
    default=None,
    help="Take back what was lent from jobs of higher priority too, or not.",
)
@click.option(
    "--cap", multiple=True, metavar="WHO:RES=N", help="A cap: notebook:gpus=2, user=ann:gpus=4."
)
@name_argument()
def set_(
    session: Session,
    name: str,
    gpus: str | None,
    cpus: str | None,
    memory: str | None,
    nominal: tuple[str, ...],
    borrow: tuple[str, ...],
    lend: tuple[str, ...],
    cohort: str | None,
    as_cohort: bool,
    weight: float | None,
    reclaim_any: bool | None,
    cap: tuple[str, ...],
) -> None:
    """Make a quota, or change one; what is not named stays.

    NAME is a project, or with --as-cohort a cohort. `RES=none` takes a resource out.

    \b
    Examples:
      windlass quota set research --as-cohort
      windlass quota set vision --cohort research --gpus 8 --borrow gpus=8 --lend gpus=4
      windlass quota set vision --cap notebook:gpus=2 --cap user=ann:gpus=4
    """
    short = {"gpus": gpus, "cpus": cpus, "memory": memory}
    fields: dict[str, Any] = {}
    owns = [f"{resource}={text}" for resource, text in short.items() if text is not None]
    for field, given in (("nominal", [*owns, *nominal]), ("borrow", borrow), ("lend", lend)):
        if given:
            fields[field] = dict(quotafile.amount(f"--{field}", text) for text in given)
    if cohort is not None:
        fields["parent"] = None if cohort == "none" else cohort
    if as_cohort:
        fields["cohort"] = True
    if weight is not None:
        fields["weight"] = weight
    if reclaim_any is not None:
        fields["reclaim_any"] = reclaim_any
    quotas = session.client.quotas
    if cap:
        known = next((found.caps for found in quotas.list() if found.name == name), ())
        fields["caps"] = quotafile.with_caps(known, cap)
    if not fields:
        raise InvalidInput("set what?", hint=f"windlass quota set {name} --gpus 8")
    quota = quotas.set(name, **fields)
    if session.one(quota.data):
        return
    output.print_table(HEAD, quota_rows(quota, 0), colour=None)
    if not quota.exists:
        session.say(f"there is no project {name} yet: it holds once there is")


@verb("rm", outputs=WORDS, group=command)
@name_argument(nargs=-1, required=True)
def rm(session: Session, name: tuple[str, ...]) -> None:
    """Remove the quotas of projects, or cohorts without members."""
    for each in name:
        session.client.quotas.delete(each)
        session.say(f"removed {each}")


@verb("apply", outputs=LISTS, group=command)
@click.option("-f", "--file", required=True, metavar="FILE", help="YAML; - is stdin.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
def apply(session: Session, file: str, yes: bool, dry_run: bool) -> None:
    """Make all quotas as a file says; shows a plan first.

    What the file does not name goes. `windlass quota ls -o yaml` writes such a file, and
    `windlass simulate` tries one.

    \b
    Examples:
      windlass quota apply -f quotas.yaml
      windlass quota apply -f quotas.yaml --dry-run
    """
    wanted = quotafile.read(file)
    quotas = session.client.quotas
    revision = quotas.revision()
    plan = quotafile.plan(quotas.export(), wanted)
    for line in plan:
        session.say(line)
    if not plan:
        session.say("nothing to change")
    elif dry_run:
        session.say("nothing was changed (--dry-run)")
    else:
        sure(
            f"Change {len(plan)} quota(s)?", "apply asks before it changes", yes=yes,
            deaf=file == "-",
        )  # fmt: skip
        quotas.apply(wanted, revision=revision)
    if not session.plain:
        _listed(session, quotas.list())


def _listed(session: Session, quotas: Sequence[Quota]) -> None:
    rows = [row for quota, depth in tree(quotas) for row in quota_rows(quota, depth)]
    if session.form == "csv":  # for programs: every row stands by itself
        rows = [[q.name, *row[1:]] for q, _ in tree(quotas) for row in quota_rows(q, 0)]
    session.items([quota.data for quota in quotas], HEAD, rows)


def tree(quotas: Sequence[Quota]) -> list[tuple[Quota, int]]:
    """Every quota below the cohort it belongs to, with its depth."""
    below: dict[str | None, list[Quota]] = {}
    for quota in quotas:
        below.setdefault(quota.parent, []).append(quota)
    found: list[tuple[Quota, int]] = []

    def walk(parent: str | None, depth: int) -> None:
        for quota in below.get(parent, ()):
            found.append((quota, depth))
            if quota.cohort:
                walk(quota.name, depth + 1)

    walk(None, 0)
    return found


def quota_rows(quota: Quota, depth: int) -> list[list[Any]]:
    """A row for each resource; the name and what belongs to the whole stand in the first."""
    amounts = (quota.nominal, quota.borrow, quota.lend, quota.used)
    named = {resource for given in amounts[:3] for resource in given}
    order = [r for r in RESOURCES if r in named] + sorted(named - set(RESOURCES))
    if not order:
        order = [r for r in RESOURCES if quota.used.get(r)][:1] or [""]
    name = "  " * depth + quota.name + (" (cohort)" if quota.cohort else "")
    rows = []
    for at, resource in enumerate(order):
        borrow = quota.borrow.get(resource, "any" if quota.parent else "")
        lend = quota.lend.get(resource, "any" if quota.parent and not quota.cohort else "")
        rows.append(
            [
                name if at == 0 else "", resource, quota.used.get(resource, 0 if resource else ""),
                quota.nominal.get(resource, ""), borrow if resource else "",
                lend if resource else "", f"{quota.weight:g}" if at == 0 else "",
                "; ".join(cap_words(cap) for cap in quota.caps) if at == 0 else "",
            ]
        )  # fmt: skip
    return rows


def cap_words(cap: Mapping[str, Any]) -> str:
    whom = [cap["kind"]] if cap.get("kind") else []
    whom += [f"user {cap['user']}"] if cap.get("user") else []
    limits = " ".join(f"{resource} {amount}" for resource, amount in cap["limits"].items())
    return f"{', '.join(whom)}: {limits}"
