"""`windlass plan`: which strategy, cut where, on how many workers."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli import output
from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.train.planning.counting import HowMany, Point
    from windlass.train.planning.plan import Plan
    from windlass.train.planning.question import Question

MOST_SERVERS = 1000
PLAN_FILE = "plan.yaml"


@dataclass(frozen=True)
class _Asked:
    """The words of the command line."""

    script: str | None
    profile: str | None
    workers: str
    servers: str | None
    link: str | None
    overlap: bool | None
    memory: str | None
    batch: int | None
    per_node: int
    node_link: str | None
    only: str | None
    device: str | None
    keep_profile: str | None


@verb("plan", outputs=WORDS, quiet=True)
@click.option("--profile", metavar="FILE", help="Plan from a saved profile, without a model.")
@click.option(
    "--workers", metavar="N", default="2", help="How many, or 1..16 to compare; 2 by default."
)
@click.option("--servers", metavar="N", help="Parameter servers, or 1..4 to compare.")
@click.option(
    "--link", metavar="RATE", help="Between workers, such as 10Gbit or 1.2GB; else measured here."
)
@click.option(
    "--overlap/--no-overlap",
    default=None,
    help="Whether communication hides behind compute; measured for a script, else it does.",
)
@click.option("--memory", metavar="SIZE", help="What a worker can hold, such as 16G.")
@click.option(
    "--batch",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="Samples in a batch; of a text profile: at which its times were taken, else 64.",
)
@click.option(
    "--per-node",
    type=click.IntRange(1, 1024),
    default=1,
    metavar="N",
    help="Workers that share a node, with --node-link between them.",
)
@click.option("--node-link", metavar="RATE", help="Between workers of a node.")
@click.option("--only", metavar="NAMES", help="Choose among these strategies, commas between.")
@click.option("--draw", is_flag=True, help="Print the clock table of the schedule.")
@click.option("-O", "--out", metavar="FILE", help="Write the plan here; plan.yaml of a script.")
@click.option("--save-profile", "keep_profile", metavar="FILE", help="Write what was measured.")
@click.option("--device", metavar="DEVICE", help="Measure a script on cpu, cuda or cuda:N.")
@click.argument("script", required=False)
def command(session: Session, draw: bool, out: str | None, **words: object) -> None:
    """Plan how to train: strategy, cuts, workers, and what that gives.

    SCRIPT defines make(), which gives a windlass.train.Task; its blocks are measured. With
    --profile nothing is: FILE is a profile of ours, or PipeDream's text form. Predicts samples a
    second and memory of data parallel, sharded and pipelined training, takes the fastest that
    fits, and shows the runner-up. With a range of workers it tells where more stops paying.

    \b
    Examples:
      windlass plan train.py --workers 8 --link 10Gbit --memory 16G
      windlass plan --profile vgg16.txt --workers 16 --link 10Gbit --draw
      windlass plan train.py --workers 1..16 --servers 1..4 --link 10Gbit
    """
    from windlass.train.planning.counting import how_many, parse_counts
    from windlass.train.planning.question import MOST_WORKERS

    asked = _Asked(**words)  # type: ignore[arg-type]  # click has checked them
    if (asked.script is None) == (asked.profile is None):
        raise InvalidInput(
            "a SCRIPT or --profile FILE: " + ("one of them" if asked.script else "one is needed"),
            hint="windlass plan train.py --workers 8 --link 10Gbit",
        )
    counts = parse_counts(asked.workers, "--workers", MOST_WORKERS)
    servers = parse_counts(asked.servers, "--servers", MOST_SERVERS) if asked.servers else []
    question = _question(session, asked, counts[0])
    if len(counts) > 1 or servers:
        _show_counts(session, how_many(question, counts, servers))
        return
    plan = _plan_of(question)
    _write(session, plan, out, asked)
    if session.quiet:
        click.echo(plan.strategy)
    elif not session.one(plan.to_json()):
        click.echo(str(plan))
    if draw:
        from windlass.train.planning.drawing import drawn

        click.echo(
            ("\n" if session.plain else "") + drawn(plan, _columns()), err=not session.plain
        )


def _plan_of(question: Question) -> Plan:
    from windlass.train.planning.choosing import answer
    from windlass.train.planning.plan import Plan

    return Plan.of(question, answer(question))


def _question(session: Session, asked: _Asked, workers: int) -> Question:
    from windlass.train.planning.links import parse_link
    from windlass.train.planning.profile import read_profile
    from windlass.train.planning.question import Question

    link = parse_link(asked.link, "--link") if asked.link else None
    node_link = parse_link(asked.node_link, "--node-link") if asked.node_link else None
    names = _names(asked.only)
    memory = _memory(asked.memory)
    if asked.profile is not None:
        if link is None:
            raise InvalidInput(
                "--link: how fast the links are, because there is nothing to measure here",
                hint="--link 10Gbit",
            )
        profile = read_profile(asked.profile, batch=asked.batch)
        if asked.batch and asked.batch != profile.batch:
            profile = profile.at(asked.batch)
        question = Question(profile, workers, link, asked.overlap is not False, names=names)
    else:
        question = _measured(session, asked, workers, link, names)
    return replace(question, memory_bytes=memory, per_node=asked.per_node, node_link=node_link)


def _measured(
    session: Session, asked: _Asked, workers: int, link: object, names: frozenset[str] | None
) -> Question:
    if importlib.util.find_spec("torch") is None:
        raise InvalidInput(
            "plan: torch is not installed",
            hint="pip install 'windlass[torch]', or --profile FILE plans without it",
        )
    from windlass.train.comparison import make_of
    from windlass.train.planning.asking import question_of
    from windlass.train.planning.links import Link

    assert asked.script is not None and (link is None or isinstance(link, Link))
    question = question_of(
        make_of(Path(asked.script)), workers, link=link, overlap=asked.overlap, names=names,
        device=asked.device, batch=asked.batch, said=session.say,
        per_machine=asked.per_node if link is not None else None,
    )  # fmt: skip
    if asked.keep_profile:
        question.profile.save(asked.keep_profile)
        session.say(f"profile written to {asked.keep_profile}")
    return question


def _names(only: str | None) -> frozenset[str] | None:
    from windlass.train.planning.choosing import KNOWN

    if only is None:
        return None
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in KNOWN:
            raise InvalidInput(f"--only: one of {', '.join(KNOWN)} (found {name!r})")
    return frozenset(names)


def _memory(text: str | None) -> int | None:
    from pydantic_core import PydanticCustomError

    from windlass.core.strict import parse_bytes

    if text is None:
        return None
    try:
        found = int(parse_bytes(text))
    except PydanticCustomError as err:
        raise InvalidInput(f"--memory: {err.message()} (found {text!r})") from err
    if found < 1:
        raise InvalidInput(f"--memory: more than nothing (found {text!r})")
    return found


def _write(session: Session, plan: Plan, out: str | None, asked: _Asked) -> None:
    """Where the user said; for a script beside us, but never over a plan that may be pinned."""
    if out is None and asked.script is None:
        return
    path = Path(out or PLAN_FILE)
    if out is None and path.exists():
        session.say(f"{path} is there already and was left alone; -O FILE writes another")
        return
    plan.save(path)
    session.say(f"plan written to {path}")


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100


def _show_counts(session: Session, found: HowMany) -> None:
    from windlass.core import plot
    from windlass.train.planning.counting import RULE

    data = {
        "points": [asdict(point) for point in found.points],
        "samples_per_s_of_one_worker": found.alone,
        "enough": asdict(found.enough),
        "enough_without_servers": asdict(found.without) if found.without else None,
        "rule": RULE,
    }
    if session.quiet or session.one(data):
        if session.quiet:
            click.echo(found.enough.workers)
        return
    head, rows = _rows(found)
    output.print_table(head, rows, colour=None)
    drawn = _curves(found)
    if any(len(points) > 1 for points in drawn.values()):
        click.echo()
        title, unicode = "samples/s by workers", plot.unicode_wanted()
        for line in plot.curves(drawn, height=8, title=title, unicode=unicode):
            click.echo(line)
    click.echo()
    for point in (found.enough, found.without):
        if point is not None:
            click.echo(_verdict(found, point))
    click.echo(f"({RULE})")


def _curves(found: HowMany) -> dict[str, list[tuple[float, float]]]:
    """For each number of servers, its name where there is more than one."""
    counts = sorted({point.servers for point in found.points}, reverse=True)
    return {
        _servers(count) if len(counts) > 1 else "": [
            (float(point.workers), point.samples_per_s)
            for point in found.points
            if point.servers == count
        ]
        for count in counts
    }


def _verdict(found: HowMany, enough: Point) -> str:
    alike = [point for point in found.points if bool(point.servers) == bool(enough.servers)]
    with_what = ""
    if found.without:
        with_what = f" and {_servers(enough.servers)}"
    strategy = "" if enough.servers else f", {_strategy(enough)}"
    fastest = enough == max(alike, key=lambda p: (p.samples_per_s, -p.workers))
    beyond = "no more of them are faster" if fastest else "beyond, more does not pay"
    return (
        f"{enough.workers} worker{'s' if enough.workers > 1 else ''}{with_what}: "
        f"{enough.samples_per_s:,.0f} samples/s, {enough.samples_per_s / found.alone:.1f}x of one "
        f"worker{strategy}; {beyond}"
    )


def _servers(count: int) -> str:
    return f"{count or 'no'} server{'s' if count > 1 else ''}"


def _strategy(point: Point) -> str:
    parts = "-".join(map(str, point.replicas)) if len(point.replicas) > 1 else ""
    return f"{point.strategy} {parts}".rstrip()


def _rows(found: HowMany) -> tuple[list[str], list[list[str]]]:
    servers = sorted({point.servers for point in found.points})
    rates = {(point.workers, point.servers): point for point in found.points}
    workers = sorted({point.workers for point in found.points})
    if servers == [0]:
        head = ["WORKERS", "SAMPLES/S", "OF ONE", "STRATEGY"]
        rows = []
        for count in workers:
            point = rates[count, 0]
            rows.append(
                [
                    str(count), f"{point.samples_per_s:,.0f}",
                    f"{point.samples_per_s / found.alone:.2f}x", _strategy(point),
                ]
            )  # fmt: skip
        return head, rows
    head = ["WORKERS", *(_servers(n).upper() for n in servers)]
    return head, [
        [str(count), *(_rate(rates.get((count, n))) for n in servers)] for count in workers
    ]


def _rate(point: Point | None) -> str:
    return "does not fit" if point is None else f"{point.samples_per_s:,.0f}"
