"""An ensemble of a study's trials: their stored predictions in, weights and one model out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import output
from windlass.cli.studyline import short
from windlass.client import ensembles, predictions
from windlass.client.predictions import Predictions
from windlass.core.errors import InvalidInput, NotFound
from windlass.tune.ensembles import METRICS, Chosen, Metric, metric_for, mixed, select

if TYPE_CHECKING:
    from windlass.client import Client

Data = dict[str, Any]


@dataclass
class Member:
    """A trial that predicted something."""

    trial: Data
    files: list[Data]
    said: Predictions
    test: Predictions | None = None


@dataclass
class Ensemble:
    study: str
    metric: Metric
    members: list[Member]
    chosen: Chosen
    rows: int
    classes: tuple[str, ...]
    test: tuple[float, float] | None = None
    """On rows that nothing was chosen by: the ensemble's score, that of its best member."""
    extra: Data = field(default_factory=dict)

    @property
    def taken(self) -> list[tuple[Member, float]]:
        """With their weights, the heaviest first."""
        pairs = zip(self.members, self.chosen.weights, strict=True)
        return sorted((pair for pair in pairs if pair[1]), key=lambda pair: -pair[1])


def gather(
    client: Client, ref: str, top: int, named: str | None, say: Callable[[str], None]
) -> Ensemble:
    """Choose among the `top` best trials. Raises InvalidInput, NotFound in words."""
    study = client.studies.get(ref)
    goal = study.data["objectives"][0]["goal"]
    candidates = ranked(client.studies.trials(ref), goal)[:top]
    if not candidates:
        raise NotFound(f"{study.name}: no trial has succeeded with a value yet")
    with tempfile.TemporaryDirectory() as folder:
        members = [
            member for trial in candidates if (member := _member(client, trial, Path(folder), say))
        ]
    if not members:
        raise InvalidInput(
            f"{study.name}: none of the best {len(candidates)} trials stored predictions",
            hint="windlass.predictions(truth, predicted) in the script, and its model in "
            "$WINDLASS_OUTPUT_DIR",
        )
    wanted = METRICS[named] if named else metric_for(goal, _classes(members))
    return _chosen(study.name, wanted, members, say)


def ranked(trials: Sequence[Data], goal: str) -> list[Data]:
    """Those that count, the best first."""
    counted = [
        trial
        for trial in trials
        if trial["state"] == "succeeded" and trial["values"] and trial["values"][0] is not None
        and trial["feasible"]
    ]  # fmt: skip
    sign = -1.0 if goal == "maximize" else 1.0
    return sorted(counted, key=lambda trial: (sign * trial["values"][0], trial["number"]))


def _member(
    client: Client, trial: Data, folder: Path, say: Callable[[str], None]
) -> Member | None:
    number = trial["number"]
    try:
        files = list(ensembles.files_of(client.http, trial["job"]))
    except NotFound:
        say(f"trial {number} is left out: its job was removed")
        return None
    found: list[Predictions | None] = []
    for names in (predictions.FILES, predictions.TEST_FILES):
        file = next((each for name in names for each in files if each["path"] == name), None)
        if file is None:
            found.append(None)
            continue
        target = folder / str(number) / file["path"]
        ensembles.bring(client.http, trial["job"], file, target)
        try:
            found.append(predictions.read(target))
        except InvalidInput as err:
            say(f"trial {number} is left out: {err}")
            return None
    if found[0] is None:
        say(f"trial {number} is left out: it stored no predictions")
        return None
    known = (*predictions.FILES, *predictions.TEST_FILES)
    models = [file for file in files if file["path"] not in known]
    return Member(trial, models, found[0], found[1])


def _classes(members: Sequence[Member]) -> bool:
    return any(member.said.classes for member in members)


def _chosen(
    study: str, metric: Metric, members: list[Member], say: Callable[[str], None]
) -> Ensemble:
    if not metric.classes and _classes(members):
        raise InvalidInput(
            f"--metric {metric.name}: the trials predicted classes, not numbers",
            hint="--metric accuracy or logloss",
        )
    if metric.classes:
        _as_classes(members)
    first = members[0].said
    kept: list[Member] = []
    arrays = []
    truth = dict(zip(first.ids, first.truth, strict=True))
    for member in members:
        array = member.said.ordered(first.ids, first.classes)
        same = array is not None and truth == dict(
            zip(member.said.ids, member.said.truth, strict=True)
        )
        if array is None or not same:
            say(f"trial {member.trial['number']} is left out: it predicted other rows")
            continue
        kept.append(member)
        arrays.append(array)
    try:
        chosen = select(first.truths(), arrays, metric)
    except ValueError as err:
        raise InvalidInput(f"{study}: {err}") from err
    found = Ensemble(study, metric, kept, chosen, len(first.ids), first.classes)
    found.test = _tested(found)
    return found


def _as_classes(members: Sequence[Member]) -> None:
    """Labels, votes and probabilities of all members, over the same classes."""
    both = [each for member in members for each in (member.said, member.test) if each]
    labels = tuple(sorted({label for each in both for label in predictions.labels_of(each)}))
    order = next((each.classes for each in both if set(each.classes) == set(labels)), labels)
    for member in members:
        member.said = predictions.as_votes(member.said, order)
        member.test = predictions.as_votes(member.test, order) if member.test else None


def _tested(found: Ensemble) -> tuple[float, float] | None:
    tests = [member.test for member in found.members]
    first = tests[found.chosen.best]
    if first is None:
        return None
    arrays = [each.ordered(first.ids, first.classes) if each else None for each in tests]
    known = [each for each in arrays if each is not None]
    if len(known) != len(arrays):
        return None
    truth = first.truths()
    together = found.metric.value(truth, mixed(known, found.chosen.weights))
    return together, found.metric.value(truth, known[found.chosen.best])


# -- one model ------------------------------------------------------------------------------


def describe(found: Ensemble) -> Data:
    """What `ensemble.json` says."""
    best = found.members[found.chosen.best]
    about: Data = {
        "format": "windlass-ensemble/1",
        "study": found.study,
        "metric": found.metric.name,
        "goal": "maximize" if found.metric.maximize else "minimize",
        "rows": found.rows,
        "score": found.chosen.score,
        "best_member": {
            "trial": best.trial["number"], "score": found.chosen.alone[found.chosen.best],
        },
        "members": [_described(found, member, weight) for member, weight in found.taken],
    }  # fmt: skip
    if found.classes:
        about["classes"] = list(found.classes)
    if found.test:
        about["test"] = {"score": found.test[0], "best_member": found.test[1]}
    return about


def _described(found: Ensemble, member: Member, weight: float) -> Data:
    number = member.trial["number"]
    return {
        "trial": number, "job": member.trial["job"], "weight": weight,
        "score": found.chosen.alone[found.members.index(member)],
        "params": member.trial["params"], "folder": f"members/{number}", "files": member.files,
    }  # fmt: skip


def register(
    client: Client, name: str, found: Ensemble, written: Mapping[str, bytes] | None = None
) -> Data:
    """A version that holds ensemble.json, each member's files below members/, and what is
    `written` beside them."""
    bare = [member.trial["number"] for member, _ in found.taken if not member.files]
    if bare:
        raise InvalidInput(
            f"trial {bare[0]} stored predictions but no model: there is nothing to register",
            hint="leave the model's files in $WINDLASS_OUTPUT_DIR",
        )
    listed = [
        {**file, "path": f"members/{member.trial['number']}/{file['path']}"}
        for member, _ in found.taken
        for file in member.files
    ]
    about = describe(found)
    text = json.dumps(about, indent=2, ensure_ascii=False).encode()
    score = f"{found.metric.name} {short(found.chosen.score)}"
    return ensembles.register(
        client.http, name, listed, {"ensemble.json": text, **(written or {})},
        description=f"ensemble of {len(found.taken)} trials of {found.study}, {score}",
        tags={"windlass.study": found.study},
    )  # fmt: skip


def draw(found: Ensemble, about: Mapping[str, Any], study: str) -> None:
    rows = [
        [
            each["trial"], f"{each['weight']:.2f}", short(each["score"]),
            " ".join(f"{name}={short(value)}" for name, value in each["params"].items()),
        ]
        for each in about["members"]
    ]  # fmt: skip
    output.print_table(["TRIAL", "WEIGHT", found.metric.name.upper(), "PARAMETERS"], rows)
    best = about["best_member"]
    click.echo(
        f"{found.metric.name} {short(about['score'])} together, {short(best['score'])} by the "
        f"best alone (trial {best['trial']}), on the {found.rows} rows it was chosen by"
    )
    if found.test:
        together, alone = (short(each) for each in found.test)
        click.echo(f"on rows held out: {together} together, {alone} by the best alone")
    if about.get("model"):
        click.echo(f"registered {about['name']}")
    else:
        click.echo(f"register it: windlass study ensemble {study} --as NAME")
