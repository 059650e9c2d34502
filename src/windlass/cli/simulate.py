"""`windlass simulate`: the scheduler on jobs and nodes that are only described."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import exits, output
from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.scheduler.simulate.limits import Limits
    from windlass.scheduler.simulate.run import Outcome
    from windlass.scheduler.simulate.variants import Plan

GENERATED = ("kueue-baseline", "kueue-large", "kueue-topology", "mmc", "mg1", "scale")
ENGINES = ("kubernetes", "ray")


@verb("simulate", outputs=WORDS)
@click.option("--nodes", metavar="FILE", help="The cluster: a CSV file of nodes.")
@click.option("--quotas", metavar="FILE", help="Cohorts and tenants: a YAML file.")
@click.option(
    "--policy",
    type=click.Choice(("strict", "backfill", "best-effort")),
    help="How jobs wait for each other; backfill unless said otherwise.",
)
@click.option(
    "--order", type=click.Choice(("fair", "fifo")), help="Whose turn it is; fair by default."
)
@click.option("--seed", type=int, default=0, metavar="N", help="Of everything that is drawn.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N jobs.")
@click.option(
    "--load",
    type=click.FloatRange(min=0, max=1000, min_open=True),
    metavar="X",
    help="Let jobs come faster or slower, so that they offer X of what the nodes can do.",
)
@click.option(
    "--mode",
    type=click.Choice(("replay", "charged", "chaos")),
    default="replay",
    help="Deciding takes no time; or the time it takes; or with faults and crashes.",
)
@click.option(
    "--generate", "made", type=click.Choice(GENERATED), help="Make the jobs instead of reading."
)
@click.option("--report", metavar="FILE", help="Write an HTML page with plots.")
@click.option(
    "--audit",
    type=click.Choice(("all", "sampled", "off")),
    default="sampled",
    help="How often the invariants are checked.",
)
@click.option(
    "--scale-nodes",
    type=click.FloatRange(min=0, max=1000, min_open=True),
    default=1.0,
    metavar="X",
    help="X times as many nodes as described.",
)
@click.option(
    "--set", "sets", multiple=True, metavar="TENANT.RESOURCE=N", help="Another quota; repeatable."
)
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    metavar="CHANGE",
    help="A further run with this change (nodes=1.2, policy=strict, order=fifo, load=1.1, "
    "preemption=off, TENANT.gpus=16; several with commas), told beside the first; repeatable.",
)
@click.option("--predict", is_flag=True, help="Guess from history how long jobs run.")
@click.option(
    "--soft-walltime", is_flag=True, help="Let jobs run past walltime_s; they are killed at it."
)
@click.option(
    "--lost-work",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="What a preempted job loses of its attempt.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0, max=86400),
    metavar="SECONDS",
    help="How long a preempted job takes to save and end; 10 by default.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Take no more than this engine was tested with: kubernetes 150,000 members, ray 40,000 "
    "and 1,000 gangs.",
)
@click.option(
    "--engine-members",
    type=click.IntRange(min=1),
    metavar="N",
    help="The engine runs at most N members at a time; further gangs wait in it with their seats.",
)
@click.option(
    "--engine-gangs", type=click.IntRange(min=1), metavar="N", help="Likewise, at most N gangs."
)
@click.option(
    "--engine-calls",
    type=click.FloatRange(min=0.001, max=1_000_000),
    metavar="PER_SECOND",
    help="The engine takes so many calls a second: one to start a member, one to stop it.",
)
@click.option(
    "--engine-burst",
    type=click.IntRange(min=1),
    metavar="N",
    help="After a pause, N calls at once; 100 by default.",
)
@click.argument("jobs", required=False)
def command(
    session: Session,
    jobs: str | None,
    made: str | None,
    mode: str,
    audit: str,
    report: str | None,
    questions: tuple[str, ...],
    predict: bool,
    soft_walltime: bool,
    lost_work: float,
    grace: float | None,
    engine: str | None,
    engine_members: int | None,
    engine_gangs: int | None,
    engine_calls: float | None,
    engine_burst: int | None,
    **asked: Any,
) -> None:
    """Replay a trace through the real scheduler.

    JOBS is a CSV file (.gz is fine). Nothing is submitted, no server is needed: the real core
    decides, only the clock and the engine are simulated. Exits 1 when an invariant was violated.

    \b
    Examples:
      windlass simulate jobs.csv --nodes nodes.csv
      windlass simulate jobs.csv --nodes nodes.csv --what-if nodes=1.2 --what-if vision.gpus=16
      windlass simulate --generate kueue-baseline --report report.html
    """
    from windlass.scheduler.simulate.run import Options
    from windlass.scheduler.simulate.variants import Plan, what_if

    plan = Plan(
        jobs=jobs,
        generate=made,
        grace_ms=None if grace is None else round(grace * 1000),
        **asked,
    )
    limits = _limits(engine, engine_members, engine_gangs, engine_calls, engine_burst)
    plans = [("as given", plan), *((question, what_if(plan, question)) for question in questions)]
    outcomes = []
    for name, each in plans:
        options = Options(
            mode=mode,
            audit=audit,
            seed=each.seed,
            lost_work=lost_work,
            soft_walltime=soft_walltime,
            predict=predict,
            limits=limits,
        )
        outcomes.append(_run(session, name, each, options))
    names = [name for name, _ in plans]
    if report is not None:
        _report(report, plan, names, outcomes)
        session.say(f"wrote {report}")
    _show(session, names, plans, outcomes)
    if any(outcome.result["invariant_violations"] for outcome in outcomes):
        sys.exit(exits.ERROR)


def _limits(
    engine: str | None,
    members: int | None,
    gangs: int | None,
    calls: float | None,
    burst: int | None,
) -> Limits:
    """What the named engine takes, but for what was said otherwise."""
    from windlass.scheduler.simulate.limits import KNOWN, Limits

    if burst is not None and calls is None:
        raise InvalidInput("--engine-burst says nothing without --engine-calls")
    known = KNOWN[engine] if engine is not None else Limits()
    return Limits(
        members=known.members if members is None else members,
        gangs=known.gangs if gangs is None else gangs,
        calls_per_s=calls or 0.0,
        burst=known.burst if burst is None else burst,
    )


def _run(session: Session, name: str, plan: Plan, options: Any) -> Outcome:
    from windlass.scheduler.simulate.run import simulate
    from windlass.scheduler.simulate.variants import workload

    progress = None if session.quiet else _progress(name)
    found = simulate(workload(plan), options, progress=progress)
    if progress is not None:
        click.echo("\r\x1b[K", nl=False, err=True)
    for line in found.result["details"]["violations"]:
        session.say(f"violated: {line}")
    return found


def _progress(name: str) -> Callable[[int, int], None] | None:
    """A line on the terminal that says how far it is; none when stderr is no terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(over: int, jobs: int) -> None:
        filled = round(over / jobs * 30) if jobs else 0
        bar = "#" * filled + "." * (30 - filled)
        click.echo(f"\r\x1b[K{name} [{bar}] {over:,} of {jobs:,} jobs", nl=False, err=True)

    return tell


def _report(path: str, plan: Plan, names: list[str], outcomes: list[Outcome]) -> None:
    from windlass.scheduler.simulate.report import write

    subject = Path(plan.jobs).name if plan.jobs else plan.generate
    page = write(
        f"Simulation of {subject}",
        names,
        [outcome.result for outcome in outcomes],
        [outcome.curves for outcome in outcomes],
    )
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as err:
        raise InvalidInput(f"--report: {path} cannot be written: {err.strerror}") from err


def _show(
    session: Session,
    names: list[str],
    plans: list[tuple[str, Plan]],
    outcomes: list[Outcome],
) -> None:
    results = [outcome.result for outcome in outcomes]
    data = dict(results[0])
    if len(results) > 1:
        data["what_if"] = [
            {"change": name, **result} for name, result in zip(names[1:], results[1:], strict=True)
        ]
    data["plan"] = {
        key: value for key, value in asdict(plans[0][1]).items() if value not in (None, ())
    }
    if session.quiet or session.one(data):
        return
    from windlass.scheduler.simulate.report import rows

    head = ["", *names] if len(names) > 1 else ["", "value"]
    output.print_table([cell.upper() for cell in head], rows(results), colour=None)
    for name, result in zip(names, results, strict=True):
        _remarks(session, name if len(names) > 1 else "", result)


def _remarks(session: Session, name: str, result: dict[str, Any]) -> None:
    start = f"{name}: " if name else ""
    if result["rejected"]:
        session.say(f"{start}{result['rejected']:,} jobs can never fit these nodes and quotas")
    _unmatched(session, start, result["details"])
    engine = result["details"].get("engine")
    if engine is not None:
        wait = engine["wait_s"]
        session.say(
            f"{start}the engine ran at most {engine['members_max']:,} members in "
            f"{engine['gangs_max']:,} gangs; a start waited in it {wait['mean']:,.1f} s, "
            f"at most {wait['max']:,.1f} s"
        )
    waiting = result["details"]["waiting_for"]
    if waiting:
        words = ", ".join(f"{count:,} {word}" for word, count in sorted(waiting.items()))
        session.say(f"{start}{sum(waiting.values()):,} jobs never started: {words}")


def _unmatched(session: Session, start: str, details: dict[str, Any]) -> None:
    """A name that stands in one file alone is often a misspelt one."""
    for names, words in (
        (details["without_quota"], "of the jobs without a quota, which are not limited"),
        (details["without_jobs"], "with a quota and without a job"),
    ):
        if names:
            shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
            session.say(f"{start}{len(names):,} tenants {words}: {shown}")
