"""`windlass study`: searches over the parameters of a job, whose trials are jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from windlass.cli import jobflags, studyflags
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.cli.specs import Flags, Plan, build, pair
from windlass.client.bundle import Bundle
from windlass.client.config import loopback
from windlass.client.http import new_key
from windlass.client.studies import Study
from windlass.core.errors import InvalidInput, Unauthenticated, Unreachable

SAMPLERS = ("random", "grid", "tpe", "cmaes", "gp", "nsga2")
PRUNERS = ("none", "asha", "halving", "median", "pbt")
HEAD = ["NAME", "STATE", "RESULTS", "RUNNING", "SAMPLER", "PRUNER", "OBJECTIVE", "USER"]
_CONSTRAINT = re.compile(r"^(.+?)(<=|>=)(.+)$")


@click.group("study")
def command() -> None:
    """Searches over parameters: trials that are jobs."""


def study_argument(**settings: Any) -> Callable[..., Any]:
    return click.argument("study", metavar="STUDY", **settings)


@verb("create", outputs=OBJECTS, group=command)
@studyflags.trials("How many to make; 20 when absent.")
@studyflags.parallel("So many at once; 4 when absent.")
@click.option("--maximize", multiple=True, metavar="METRIC", help="What is better when more.")
@click.option("--minimize", multiple=True, metavar="METRIC", help="What is better when less.")
@click.option("--take", type=click.Choice(["last", "best"]), help="Which report is the value.")
@click.option("--sampler", type=click.Choice(SAMPLERS), help="How parameters are chosen.")
@click.option("--pruner", type=click.Choice(PRUNERS), help="Which trials end early, or pause.")
@click.option("--min-step", type=click.IntRange(1), help="The first rung of asha and halving.")
@click.option("--max-step", type=click.IntRange(1), help="No rung at or past it.")
@click.option("--factor", type=click.IntRange(2), help="One of so many passes a rung; 3.")
@click.option("--interval", type=click.IntRange(1), help="Of pbt: steps between two looks.")
@click.option("--no-pause", is_flag=True, help="Of asha: stop rather than pause.")
@studyflags.seed("Of all chance; 0 when absent.")
@click.option("--max-time", metavar="DURATION", help="End the study after this long.")
@click.option("--space", metavar="FILE:FUNCTION", help="A space with branches, in Python.")
@click.option("--hyperopt", metavar="FILE[:NAME]", help="The space of a Hyperopt script.")
@click.option("--share-weights", is_flag=True, help="Start from the best one's checkpoint.")
@click.option("--from", "warm", multiple=True, metavar="STUDY", help="Learn from its results.")
@click.option("--constraint", multiple=True, metavar="M<=N", help="Count a trial only if so.")
@click.option(
    "--give", type=click.Choice(["flags", "assign", "environment"]),
    help="How parameters reach the command: --lr 0.1, lr=0.1, or WINDLASS_PARAMS alone.",
)  # fmt: skip
@jobflags.job_flags
def create(session: Session, dry_run: bool, **given: Any) -> None:
    """Search over the parameters of a job.

    Options may stand before or after the script; what is the script's own comes after --. A
    parameter that the command names as ${lr} is filled in there, any other is added as --lr 0.1.

    \b
    Examples:
      windlass study create train.py --param lr=log:1e-4..1e-1 --param layers=int:1..6 \\
          --trials 50 --parallel 4 --maximize val_acc
      windlass study create --param opt=sgd,adam --minimize loss -- train.py --epochs 3
      windlass study create train.py --space search.py:space --maximize val_acc
      windlass study create -f study.yaml --trials 100
    """
    space = _of_hyperopt(session, given.pop("hyperopt"))
    if where := given.pop("space"):
        space |= of_function(where)
    spec, plan = _described(session, given, space)
    code = jobflags.pack(session, plan)
    if dry_run:
        _dry_run(session, spec, code)
        return
    announce(session, send(session, spec, plan, code))


@verb("ls", outputs=LISTS, group=command)
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, help="At most so many.")
def ls(session: Session, limit: int) -> None:
    """The project's studies, newest first."""
    found = session.client.studies.list(limit=limit)
    session.items([study.data for study in found], HEAD, [row(study) for study in found])


@verb("show", outputs=WORDS, group=command, quiet=False)
@click.option("-n", "--limit", type=click.IntRange(0), default=15, help="So many trials.")
@study_argument()
def show(session: Session, study: str, limit: int) -> None:
    """A study: best so far, what matters, the trials.

    \b
    Examples:
      windlass study show brisk-otter
      windlass study show brisk-otter -n 100
    """
    found = session.client.studies.get(study)
    trials = session.client.studies.trials(study)
    if session.one({**found.data, "trials_": trials}):
        return
    from windlass.cli import studyline

    studyline.draw(found.data, trials, limit)


@verb("best", outputs=WORDS, group=command)
@study_argument()
def best(session: Session, study: str) -> None:
    """The best trial: its parameters, its value, its job.

    \b
    Examples:
      windlass study best brisk-otter
      windlass rerun $(windlass study best -q brisk-otter)
    """
    found = session.client.studies.best(study)
    if session.quiet:
        for trial in found:
            click.echo(trial["job"])
        return
    if session.form != "table":
        session.one({"items": found})
        return
    if not found:
        session.say("no trial has a value yet")
    from windlass.cli import studyline

    for trial in found:
        studyline.one(session.client.studies.get(study).data, trial)


@verb("stop", outputs=OBJECTS, group=command)
@click.option("--reason", default="", help="For those who read its story.")
@study_argument(nargs=-1, required=True)
def stop(session: Session, study: tuple[str, ...], reason: str) -> None:
    """Make no more trials, and stop those that run; what was found stays."""
    for each in study:
        found = session.client.studies.stop(each, reason=reason)
        if not session.one(found.data):
            click.echo(f"{found.name}: {'stopping' if not found.done else found.state}")


@verb("add-trials", outputs=OBJECTS, group=command)
@study_argument()
@click.argument("trials", type=click.IntRange(1), metavar="N")
def add_trials(session: Session, study: str, trials: int) -> None:
    """So many more trials; a study that is over goes on."""
    found = session.client.studies.add_trials(study, trials)
    if not session.one(found.data):
        click.echo(f"{found.name}: {found.trials} trials, {found.made} made so far")


@verb("wait", outputs=OBJECTS, group=command)
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="At most so long.")
@study_argument()
def wait(session: Session, study: str, timeout: float | None) -> None:
    """Block until a study is over."""
    try:
        found = session.client.studies.wait(study, timeout_seconds=timeout)
    except TimeoutError as err:
        raise click.ClickException(str(err)) from err
    if not session.one(found.data):
        click.echo(f"{found.name} {found.state}: {found.reason}")


@verb("ensemble", outputs=OBJECTS, group=command)
@studyflags.top(5, "Choose among so many of the best trials.")
@studyflags.metric("By what; else by the study's goal.")
@studyflags.model_name("Register it as a version of this model.")
@study_argument()
def ensemble(session: Session, study: str, top: int, metric: str | None, name: str | None) -> None:
    """The trials that together predict best, as one model.

    Trials keep what they predicted with windlass.predictions(truth, predicted), or as
    predictions.csv or predictions.npz in $WINDLASS_OUTPUT_DIR, their model beside it. A trial is
    taken as often as it helps; how often is its weight.

    \b
    Examples:
      windlass study ensemble brisk-otter --top 5
      windlass study ensemble brisk-otter --top 10 --metric logloss --as digits
    """
    from windlass.cli import ensembling

    found = ensembling.gather(session.client, study, top, metric, session.say)
    about = ensembling.describe(found)
    if name:
        version = ensembling.register(session.client, name, found)
        about |= {"name": f"{version['model']}@{version['version']}", "model": version}
    if not session.one({"name": study, **about}):
        ensembling.draw(found, about, study)
    if name and about["model"]["warning"]:
        session.say(about["model"]["warning"])


@verb("cv", outputs=OBJECTS, group=command)
@studyflags.folds(1000, "So many jobs, each with a part of the rows left out.")
@studyflags.parallel("So many at once; all when absent.")
@click.option("--maximize", multiple=True, metavar="METRIC", help="A score that folds log.")
@click.option("--minimize", multiple=True, metavar="METRIC", help="An error that folds log.")
@studyflags.seed("Given to the script as --seed, too.")
@click.option("-d", "--detach", is_flag=True, help="Do not wait for the folds.")
@jobflags.job_flags
def cv(session: Session, detach: bool, dry_run: bool, **given: Any) -> None:
    """Cross-validation: one job for each fold.

    The script gets --fold 0 --folds 5 and logs what it scored on that fold.

    \b
    Examples:
      windlass study cv train.py --folds 5 --maximize accuracy
      windlass study cv --folds 10 --minimize rmse -- train.py --alpha 0.1
    """
    from windlass.cli import folding

    given = folding.as_study(given)
    spec, plan = _described(session, given)
    folding.check(spec)
    code = jobflags.pack(session, plan)
    if dry_run:
        _dry_run(session, spec, code)
        return
    study = send(session, spec, plan, code)
    if detach:
        announce(session, study)
        return
    folding.finish(session, study.name)


@verb("rm", outputs=WORDS, group=command)
@study_argument(nargs=-1, required=True)
def rm(session: Session, study: tuple[str, ...]) -> None:
    """Remove studies; one that runs is stopped first. Their jobs stay."""
    for each in study:
        session.client.studies.delete(each)
        session.say(f"removed {each}")


# -- from flags to a spec -------------------------------------------------------------------


def _of_hyperopt(session: Session, where: str | None) -> dict[str, Any]:
    """The space that a script of Hyperopt describes, with a report of what it became."""
    if not where:
        return {}
    from windlass.cli.specs import user_python
    from windlass.client.importers.hyperopt import load

    found = load(where, user_python())
    for note in found.notes:
        mark = "→" if note.fate == "mapped" else f"({note.fate})"
        session.say(f"  {note.field}: {note.value} {mark} {note.what}")
    return found.space


def of_function(where: str, folder: Path | None = None) -> dict[str, Any]:
    """The space that a function of the user's describes; `folder`: where its file lies."""
    from windlass.cli.specs import user_python
    from windlass.client.spaces import of_file

    return of_file(where, user_python(), folder)


def _described(
    session: Session, given: dict[str, Any], space: dict[str, Any] | None = None
) -> tuple[dict[str, Any], Plan]:
    """The study that the flags and the file describe, and the plan of its job."""
    base: dict[str, Any] = {}
    folder = None
    if file := given.pop("file", None):
        from windlass.cli import jobfile

        documents = jobfile.read(file, kinds=("study", "job"))
        if len(documents) > 1:
            raise InvalidInput(f"-f: {file} has {len(documents)} documents; give one")
        folder = None if file == "-" else Path(file).absolute().parent
        base = documents[0]
        if base.get("kind") != "study":
            base = {"job": base}
    base = filled(base, folder)
    if space:
        base = {**base, "space": {**(base.get("space") or {}), **space}}
    spec = _of_flags(base, given)
    flags = {name: given[name] for name in Flags._fields if name in given}
    flags["after"] = tuple(session.ref(word) for word in flags.get("after", ()))
    local = loopback(session.config.get("url").value)
    return planned(spec, Flags(**{**flags, "name": None, "param": ()}), local, folder)


def filled(spec: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """A file's `space: search.py:space` as the space that it names."""
    where = spec.get("space")
    return {**spec, "space": of_function(where, folder)} if isinstance(where, str) else spec


def planned(
    spec: dict[str, Any], flags: Flags, local: bool, folder: Path | None
) -> tuple[dict[str, Any], Plan]:
    """The spec with its job as `windlass run` would make it, and the plan of that job."""
    if not isinstance(spec.get("job"), dict) and not flags.command:
        raise InvalidInput("nothing to run: give a script, or `job` in the study's file")
    plan = build(flags, local=local, base=spec.get("job") or {}, folder=folder)
    return {**spec, "job": plan.spec}, plan


def _of_flags(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    spec = dict(base)
    if given.get("name"):
        spec["name"] = given["name"]
    for field in ("trials", "parallel", "seed", "max_time", "give"):
        if given.get(field) is not None:
            spec[field] = given[field]
    if given.get("param"):
        pairs = dict(pair("--param", text) for text in given["param"])
        spec["space"] = {**(spec.get("space") or {}), **pairs}
    if not spec.get("space"):
        raise InvalidInput(
            "nothing to search: no parameter was given",
            hint="such as --param lr=log:1e-4..1e-1, --param layers=int:1..6, --param opt=a,b",
        )
    goals = [
        {"metric": metric, "goal": goal, **({"take": given["take"]} if given["take"] else {})}
        for goal in ("maximize", "minimize")
        for metric in given[goal]
    ]
    if goals:
        for field in ("maximize", "minimize"):
            spec.pop(field, None)
        spec["objectives"] = goals
    if not any(spec.get(field) for field in ("objectives", "maximize", "minimize")):
        raise InvalidInput(
            "no objective: which metric is to become better?",
            hint="--maximize val_acc or --minimize loss, as the script logs it",
        )
    if given["sampler"]:
        spec["sampler"] = given["sampler"]
    pruner = spec.get("pruner") or {}
    pruner = {"kind": pruner} if isinstance(pruner, str) else dict(pruner)
    named = {
        "kind": given["pruner"], "min_step": given["min_step"], "max_step": given["max_step"],
        "factor": given["factor"], "interval": given["interval"],
        "pause": False if given["no_pause"] else None,
    }  # fmt: skip
    pruner |= {key: value for key, value in named.items() if value is not None}
    if pruner:
        spec["pruner"] = pruner
    if given.get("share_weights"):
        spec["share_weights"] = True
    if given["warm"]:
        spec["warm_start"] = list(given["warm"])
    if given["constraint"]:
        spec["constraints"] = [_constraint(text) for text in given["constraint"]]
    return spec


def _constraint(text: str) -> dict[str, Any]:
    """`latency<=10` → {"metric": "latency", "most": 10.0}."""
    found = _CONSTRAINT.match(text)
    try:
        if found is not None:
            side = "most" if found[2] == "<=" else "least"
            return {"metric": found[1].strip(), side: float(found[3])}
    except ValueError:
        pass
    raise InvalidInput(f"--constraint: {text!r} is not METRIC<=NUMBER or METRIC>=NUMBER")


def send(session: Session, spec: dict[str, Any], plan: Plan, code: Bundle | None) -> Study:
    """Create it; a server of this machine that is not up is started first."""
    key = new_key()
    if session.config.local:
        session.client.http.patience_seconds = 0.2  # why wait for what we can start ourselves
    try:
        return session.client.studies.create(spec, code=code, idempotency_key=key)
    except (Unreachable, Unauthenticated) as err:
        if not session.config.local:
            raise
        from windlass.cli import local, told

        if isinstance(err, Unauthenticated) and local.find():
            raise  # it is up: what is missing is not a server
        session.say("starting the server …")
        local.begin(local.with_port(told.kept(), session.say))
        session.reload()
        return session.client.studies.create(spec, code=code, idempotency_key=key)


def _dry_run(session: Session, spec: dict[str, Any], code: Bundle | None) -> None:
    answer = session.client.studies.check(spec)
    if session.one(answer):
        return
    count = f"{len(code.files)} files, {code.size:,} bytes" if code else "no code"
    click.echo(f"would create a study ({count}); its first job might be:")
    click.echo("  " + " ".join(answer["job"]["run"]))


def announce(session: Session, study: Study) -> None:
    if session.one(study.data):
        return
    click.echo(study.name)
    about = study.data
    session.say(
        f"{study.trials} trials, sampler {about['sampler']}, pruner {about['pruner']}"
        f" · see it: windlass study show {study.name}"
    )


def row(study: Study) -> list[Any]:
    about = study.data
    running = sum(study.counts.get(state, 0) for state in ("running", "pausing", "stopping"))
    goals = ", ".join(f"{each['goal'][:3]} {each['metric']}" for each in about["objectives"])
    return [
        study.name, study.state, f"{study.results}/{study.trials}", running or "",
        about["sampler"], "" if about["pruner"] == "none" else about["pruner"], goals,
        about["user"],
    ]  # fmt: skip
