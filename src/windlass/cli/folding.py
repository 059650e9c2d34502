"""Cross-validation as a study: a grid over the folds, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import output
from windlass.cli.session import Session
from windlass.cli.studyline import short
from windlass.core.errors import InvalidInput

_ABSENT = (
    "take", "pruner", "min_step", "max_step", "factor", "interval", "no_pause", "max_time",
    "give", "warm", "constraint",
)  # fmt: skip


def as_study(given: Mapping[str, Any]) -> dict[str, Any]:
    """What `study create` would have been given."""
    folds, seed = int(given["folds"]), given["seed"]
    if given["param"]:
        raise InvalidInput(
            "--param: cross-validation tries one set of parameters",
            hint="give it to the script: windlass study cv --maximize accuracy -- train.py --c 1",
        )
    param = [f"fold={','.join(map(str, range(folds)))}", f"folds={folds}"]
    if seed is not None:
        param.append(f"seed={seed}")
    rest = {name: value for name, value in given.items() if name != "folds"}
    return {
        **dict.fromkeys(_ABSENT), "warm": (), "constraint": (), **rest, "sampler": "grid",
        "trials": folds, "parallel": given["parallel"] or folds, "param": tuple(param),
    }  # fmt: skip


def check(spec: Mapping[str, Any]) -> None:
    """Raises InvalidInput where a file asks for a search as well."""
    more = [name for name in spec["space"] if name not in ("fold", "folds", "seed")]
    if more:
        raise InvalidInput(f"space: {more[0]}: cross-validation tries one set of parameters")


def together(objectives: Sequence[Mapping[str, Any]], trials: Sequence[Any]) -> dict[str, Any]:
    """For each metric its mean over the folds, how far they are apart, and each fold's value."""
    found = {}
    for at, objective in enumerate(objectives):
        values = [
            trial["values"][at]
            if trial["state"] == "succeeded" and len(trial["values"]) > at
            else None
            for trial in trials
        ]
        known = [value for value in values if value is not None]
        found[objective["metric"]] = {
            "mean": statistics.fmean(known) if known else None,
            "deviation": statistics.stdev(known) if len(known) > 1 else None,
            "folds": values,
        }
    return found


def finish(session: Session, name: str) -> None:
    """Wait for the folds and say what they scored. Raises when one of them did not."""
    study = session.client.studies.wait(name)
    trials = sorted(session.client.studies.trials(name), key=lambda each: each["params"]["fold"])
    found = together(study.data["objectives"], trials)
    if not session.one({"name": name, "state": study.state, "metrics": found}):
        rows = [
            [
                trial["params"]["fold"],
                trial["state"],
                *[short(each["folds"][at]) for each in found.values()],
                trial["job"][:12],
            ]
            for at, trial in enumerate(trials)
        ]
        head = ["FOLD", "STATE", *[metric.upper() for metric in found], "JOB"]
        output.print_table(head, rows)
        for metric, each in found.items():
            click.echo(f"{metric} {short(each['mean'])} ± {short(each['deviation'])}")
    bad = [trial for trial in trials if trial["state"] != "succeeded"]
    if bad or len(trials) < study.trials:
        first = f": fold {bad[0]['params']['fold']} {bad[0]['reason']}" if bad else ""
        missing = study.trials - len(trials) + len(bad)
        raise click.ClickException(f"{missing} of {study.trials} folds gave no value{first}")
