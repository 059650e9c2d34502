"""`windlass automl`: a table in, a model that predicts out; in between one study, whose trials are
jobs. What is heavy (scikit-learn, torch) runs in these, never here."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from windlass.automl import families, look, shipping, table
from windlass.cli import moments, studyflags
from windlass.cli.session import OBJECTS, Session, verb
from windlass.cli.specs import Flags, Plan
from windlass.core.errors import InvalidInput

METRICS = {"classification": ("accuracy", "logloss"), "regression": ("rmse",)}
MANY = 1000
"""Trials, where only the time ends it."""
SHARE = 1 / 3
"""Of the time, for one trial: none takes all of it."""
DATA = "data.csv"
HEAD = ["RANK", "TRIAL", "FAMILY", "SCORE", "HELD OUT", "SECONDS", "PARAMETERS"]


@verb("automl", outputs=OBJECTS)
@click.option("--data", metavar="FILE", required=True, help="A CSV file with a head.")
@click.option("--target", metavar="COLUMN", required=True, help="The column to predict.")
@click.option(
    "--time", "budget", metavar="DURATION", default="10m", show_default=True, help="For all of it."
)
@studyflags.trials("At most so many models.")
@studyflags.parallel("So many at once.", default=4, show_default=True)
@studyflags.model_name("The model's name; else the file's.")
@click.option("--task", type=click.Choice(list(METRICS)), help="Guessed when absent.")
@studyflags.metric("What to be good at; accuracy or rmse when absent.")
@click.option(
    "--family",
    "only",
    multiple=True,
    type=click.Choice(list(families.SPACES)),
    help="Try only these; repeat.",
)
@studyflags.folds(20, "Of cross-validation.")
@click.option(
    "--holdout",
    type=click.FloatRange(0.05, 0.5),
    default=0.2,
    show_default=True,
    help="This part of the rows only measures.",
)
@studyflags.top(10, "The ensemble is chosen among so many.")
@studyflags.seed("Of all chance; 0 when absent.", default=0)
def command(session: Session, **given: Any) -> None:
    """Find a good model for a table, and register it.

    Linear models, forests, boosting, nearest neighbours, support vectors, LightGBM, XGBoost and a
    small network, where they are installed, as trials of one study; the best of them together
    become one model.

    \b
    Examples:
      windlass automl --data iris.csv --target species --time 10m
      windlass automl --data houses.csv --target price --trials 40 --parallel 8 --as houses
    """
    began = time.monotonic()
    seconds = moments.duration("--time", given["budget"])
    problem, asked = _asked(session, given)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        _lay(folder, Path(given["data"]), asked)
        found = _look(session, folder, seconds)
        chosen = _families(session, found, given["only"])
        left = seconds - (time.monotonic() - began) - min(20.0, 0.1 * seconds)
        if left < 1:
            raise InvalidInput(f"--time {given['budget']}: not long enough to try one model")
        study = _study(session, folder, asked, chosen, given, left)
    session.say(f"study {study} tries {', '.join(chosen)}; see it: windlass study show {study}")
    _wait(session, study, str(asked["metric"]))
    _finish(session, study, problem, asked, given)


def _asked(session: Session, given: Mapping[str, Any]) -> tuple[table.Problem, dict[str, Any]]:
    path = Path(given["data"])
    if not path.is_file():
        raise InvalidInput(f"--data: no such file: {path}")
    try:
        rows, problem = table.judge(table.read(path), given["target"], given["task"] or "")
    except table.Unfit as err:
        raise InvalidInput(str(err)) from err
    metric = given["metric"] or METRICS[problem.task][0]
    if metric not in METRICS[problem.task]:
        known = " or ".join(METRICS[problem.task])
        raise InvalidInput(f"--metric {metric}: of {problem.task} it is {known}")
    other = next(each for each in METRICS if each != problem.task)
    guess = "" if given["task"] else f" (--task {other} to override)"
    session.say(f"{problem.task}: {problem.why}{guess}")
    session.say(
        f"{len(rows.rows)} rows, {len(problem.numbers)} columns of numbers, "
        f"{len(problem.categories)} of categories; {given['folds']} folds, "
        f"{given['holdout']:.0%} held out"
    )
    for note in problem.notes:
        session.say(note)
    asked = {name: given[name] for name in ("target", "folds", "holdout", "seed")}
    return problem, {**asked, "data": DATA, "task": problem.task, "metric": metric}


def _lay(folder: Path, data: Path, asked: Mapping[str, Any]) -> None:
    """What the jobs get: our modules, the table, what was asked."""
    for path, text in shipping.files().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(text)
    shutil.copyfile(data, folder / DATA)
    (folder / look.ASKED).write_text(json.dumps(asked), encoding="utf-8")


def _plan(session: Session, folder: Path, module: str, seconds: int = 0) -> Plan:
    from windlass.cli.specs import build
    from windlass.client.config import loopback

    words = ("python", "-m", f"{shipping.PACKAGE}.{module}")
    limit = f"{seconds}s" if seconds else None
    flags = Flags(command=words, code=str(folder), framework="sklearn", time=limit)
    return build(flags, local=loopback(session.config.get("url").value))


def _look(session: Session, folder: Path, seconds: float) -> dict[str, Any]:
    """What the first job found. Raises InvalidInput with its words."""
    from windlass.cli import jobflags
    from windlass.client import ensembles

    plan = _plan(session, folder, "look")
    job = jobflags.send(session, plan, jobflags.pack(session, plan))
    try:
        job = session.client.jobs.wait(job.id, timeout_seconds=seconds)
    except TimeoutError as err:
        session.client.jobs.stop(job.id)
        raise click.ClickException(f"the time is over, and {err}: no model was tried") from err
    files = {each["path"]: each for each in ensembles.files_of(session.client.http, job.id)}
    if look.FOUND not in files:
        raise InvalidInput(
            f"the table could not be looked at: job {job.name} {job.state}",
            hint=f"windlass logs {job.name}",
        )
    target = folder / look.FOUND
    ensembles.bring(session.client.http, job.id, files[look.FOUND], target)
    found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    target.unlink()
    if "unfit" in found:
        raise InvalidInput(found["unfit"])
    return found


def _families(session: Session, found: Mapping[str, Any], only: tuple[str, ...]) -> list[str]:
    chosen = [each for each in found["families"] if not only or each in only]
    for note in found["notes"]:
        if note.startswith("no "):
            session.say(note)
    if not chosen:
        raise InvalidInput(f"--family: none of {', '.join(only)} can be tried where jobs run")
    return chosen


def _study(
    session: Session, folder: Path, asked: Mapping[str, Any], chosen: list[str],
    given: Mapping[str, Any], seconds: float,
) -> str:  # fmt: skip
    from windlass.cli import jobflags
    from windlass.cli.study import send

    plan = _plan(session, folder, "trial", max(20, int(seconds * SHARE)))
    goal = "maximize" if asked["metric"] == "accuracy" else "minimize"
    spec = {
        "job": plan.spec, "space": families.space_of(chosen), "give": "environment",
        "objectives": [{"metric": asked["metric"], "goal": goal}],
        "trials": given["trials"] or MANY, "parallel": given["parallel"], "seed": given["seed"],
        "max_time": f"{max(1, int(seconds))}s",
    }  # fmt: skip
    return send(session, spec, plan, jobflags.pack(session, plan)).name


def _wait(session: Session, study: str, metric: str) -> None:
    """Until it is over, saying each better model."""
    said: tuple[int, ...] = ()
    try:
        for now in session.client.studies.follow(study):
            if now.best and now.best != said:
                said = now.best
                value = now.best_values[0]
                session.say(f"{now.results} tried · {metric} {value:.4g} by trial {said[0]}")
    except KeyboardInterrupt:
        session.say(
            f"the study goes on: windlass study stop {study}, and "
            f"windlass study ensemble {study} --as NAME"
        )
        raise


def _finish(
    session: Session, study: str, problem: table.Problem, asked: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:  # fmt: skip
    from windlass.cli import ensembling, output

    board = _leaderboard(session, study, str(asked["metric"]))
    if not board:
        reason = session.client.studies.get(study).reason
        raise InvalidInput(
            f"no model was finished ({reason})",
            hint=f"more --time, or windlass study show {study}",
        )
    found = ensembling.gather(
        session.client, study, given["top"], str(asked["metric"]), session.say
    )
    name = given["name"] or _name(Path(given["data"]).stem)
    version = ensembling.register(session.client, name, found, shipping.model_files())
    about = ensembling.describe(found)
    ref = f"{version['model']}@{version['version']}"
    data = {
        "name": ref, "task": problem.task, "why": problem.why, "study": study,
        "leaderboard": board, "ensemble": about, "model": version,
    }  # fmt: skip
    if not session.one(data):
        rows = [
            [at, each["trial"], each["family"], _short(each["score"]), _short(each["holdout"]),
             _short(each["seconds"]), each["words"]]
            for at, each in enumerate(board[:15], start=1)
        ]  # fmt: skip
        click.echo(f"leaderboard ({asked['metric']}, {asked['folds']} folds)")
        output.print_table(HEAD, rows)
        click.echo()
        ensembling.draw(found, {**about, "name": ref, "model": version}, study)
        folder = version["model"]
        click.echo(f"use it: windlass model get {ref} && python {folder}/predict.py ROWS.csv")
    if version["warning"]:
        session.say(version["warning"])


def _leaderboard(session: Session, study: str, metric: str) -> list[dict[str, Any]]:
    from windlass.cli.ensembling import ranked

    goal = session.client.studies.get(study).data["objectives"][0]["goal"]
    trials = ranked(session.client.studies.trials(study), goal)
    runs = session.client.runs.of([trial["job"] for trial in trials])

    def told(trial: Mapping[str, Any], key: str) -> Any:
        run = runs.get(trial["job"])
        return run.metrics[key]["last"] if run and key in run.metrics else None

    return [
        {
            "trial": trial["number"], "family": trial["params"]["family"],
            "score": trial["values"][0], "holdout": told(trial, f"holdout_{metric}"),
            "seconds": told(trial, "seconds"), "params": trial["params"],
            "words": " ".join(
                f"{key.partition('_')[2]}={_short(value)}"
                for key, value in trial["params"].items()
                if key != "family"
            ),
        }
        for trial in trials
    ]  # fmt: skip


def _short(value: Any) -> str:
    from windlass.cli.studyline import short

    return short(value)


def _name(stem: str) -> str:
    """A file's name as a model may be called."""
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40] or "automl"
