"""A plan: which strategy, which blocks on how many workers, and what was predicted.

A file of it is YAML that a person can read, change and pin. What must hold: stages follow each
other without a gap, replicas add up to the workers. What was predicted may be left out of a plan
written by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, ValidationError

from windlass.core.errors import InvalidInput
from windlass.core.strict import Count, Strict, Text
from windlass.core.yamlfiles import KeysOnce
from windlass.train.planning.choosing import Answer
from windlass.train.planning.question import MOST_WORKERS, Candidate, Question, ms, size

FORM = 1
HEAD = """\
# A plan of windlass: edit it, pin it, and give it to fit(…, strategy="{strategy}", plan="FILE").
# blocks: [first, last] of the list at the end. compute_ms is of a batch on one replica, sync_ms of
# an exchange of gradients among all replicas; both and what was predicted are for the reader.
"""
Milliseconds = Annotated[float, Field(ge=0)]
Option = bool | int | float | str
COPIED = ("gpipe", "1f1b", "interleaved", "zb1p", "zbv")
"""Pipelines that are replicated as a whole, not stage by stage."""


class _Loader(KeysOnce, yaml.SafeLoader):
    pass


class PlanStage(Strict):
    blocks: tuple[Count, Count]
    """First and last, of `Plan.blocks`."""
    replicas: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    compute_ms: Milliseconds | None = None
    sync_ms: Milliseconds | None = None
    memory_bytes: Count | None = None


class RunnerUp(Strict):
    strategy: Text
    replicas: tuple[Count, ...]
    samples_per_s: Milliseconds
    why: Text


class Plan(Strict):
    """Raises InvalidInput where the parts do not belong together (`load`, `of`)."""

    windlass_plan: Annotated[int, Field(ge=FORM, le=FORM)] = FORM
    strategy: Annotated[str, Field(min_length=1, max_length=100)]
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)]
    stages: Annotated[tuple[PlanStage, ...], Field(min_length=1)]
    options: dict[Text, Option] = {}
    """Of the strategy: micro_batches, recompute …"""
    batch: Annotated[int, Field(ge=1)] | None = None
    link: Text | None = None
    per_node: Annotated[int, Field(ge=1)] | None = None
    node_link: Text | None = None
    overlap: bool | None = None
    samples_per_s: Milliseconds | None = None
    """Predicted."""
    ratio_to_dp: Milliseconds | None = None
    runner_up: RunnerUp | None = None
    notes: tuple[Text, ...] = ()
    blocks: tuple[Text, ...] = ()
    """Names, in the order that `stages` counts."""

    def check(self) -> Self:
        """Raises InvalidInput that names the field and what was found."""
        following = 0
        for at, stage in enumerate(self.stages):
            first, last = stage.blocks
            if first != following or last < first:
                raise InvalidInput(
                    f"stages[{at}].blocks: from {following} to {following} or more, because the "
                    f"stage before ends there (found [{first}, {last}])"
                )
            following = last + 1
        if self.blocks and following != len(self.blocks):
            raise InvalidInput(
                f"stages[{len(self.stages) - 1}].blocks: it ends with block "
                f"{len(self.blocks) - 1}, the last there is (found [{first}, {last}])"
            )
        if self.strategy in COPIED and len(set(self.replicas)) > 1:
            raise InvalidInput(
                f"stages: {self.strategy} is copied as a whole, so all stages have as many "
                f"replicas (found {', '.join(map(str, self.replicas))})"
            )
        replicas = sum(self.replicas)
        if replicas * self.slices != self.workers * self.stages_each:
            each = f", {self.stages_each} stages on each" if self.stages_each > 1 else ""
            if self.slices > 1:
                each += f", {self.slices} of them for each replica"
            raise InvalidInput(
                f"stages: the replicas of all stages are the {self.workers} workers{each} "
                f"(found {' + '.join(map(str, self.replicas))} = {replicas})"
            )
        return self

    @property
    def stages_each(self) -> int:
        """How many a worker holds."""
        if self.strategy == "interleaved":
            return int(self.options.get("chunks", 2))
        return 2 if self.strategy == "zbv" else 1

    @property
    def slices(self) -> int:
        """Workers over which the layers of a replica are cut."""
        found = self.options.get("size" if self.strategy == "tensor" else "tensor", 1)
        return found if isinstance(found, int) and found > 1 else 1

    @property
    def replicas(self) -> tuple[int, ...]:
        return tuple(stage.replicas for stage in self.stages)

    def told(self, known: Container[str]) -> dict[str, Any]:
        """Its options, as far as they are `known` to the strategy, and its cuts."""
        found: dict[str, Any] = {n: value for n, value in self.options.items() if n in known}
        found["cuts"] = tuple(stage.blocks[0] for stage in self.stages[1:])
        return found

    def settings(self) -> dict[str, Any]:
        """The options of the strategy: its cuts, the replicas of its stages, and `options`."""
        found: dict[str, Any] = dict(self.options)
        if len(self.stages) > 1:
            found["cuts"] = tuple(stage.blocks[0] for stage in self.stages[1:])
            found["replicas"] = self.replicas[0] if self.strategy in COPIED else self.replicas
        return found

    @property
    def predicted(self) -> float | None:
        """Samples a second."""
        return self.samples_per_s

    @property
    def memory_bytes(self) -> int | None:
        """Of the worker that holds most."""
        known = [stage.memory_bytes for stage in self.stages if stage.memory_bytes is not None]
        return max(known, default=None)

    def to_json(self) -> dict[str, Any]:
        """What `windlass plan -o json` prints."""
        found = json.loads(self.model_dump_json(exclude={"windlass_plan"}))
        for name in ("per_node", "node_link"):
            if found[name] is None:
                del found[name]
        return dict(found)

    def save(self, path: str | Path) -> Path:
        """Write it; gives the path, for `fit(plan=…)`."""
        data = {"windlass_plan": FORM, **_without_none(self.to_json())}
        text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96)
        where = Path(path)
        where.write_text(HEAD.format(strategy=self.strategy) + text, encoding="utf-8")
        return where

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises InvalidInput that names the field, what was found and what is meant."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as err:
            raise InvalidInput(f"{path}: it is not UTF-8 text") from err
        except OSError as err:
            raise InvalidInput(f"{path}: it cannot be read: {err.strerror or err}") from err
        try:
            data = yaml.load(text, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError) as err:
            raise InvalidInput(f"{path}: it is not YAML: {' '.join(str(err).split())}") from err
        if not isinstance(data, dict) or "windlass_plan" not in data:
            raise InvalidInput(
                f"{path}: windlass_plan: {FORM} (missing)",
                hint="a plan is a mapping that says so; `windlass plan` writes one",
            )
        try:
            return cls.model_validate_json(json.dumps(data)).check()
        except ValidationError as err:
            first = err.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InvalidInput(
                f"{path}: {field}: {first['msg']} (found {str(first['input'])[:80]!r})"
            ) from err
        except TypeError as err:
            raise InvalidInput(f"{path}: {err}") from err
        except InvalidInput as err:
            raise InvalidInput(f"{path}: {err.message}", hint=err.hint) from err

    @classmethod
    def given(cls, value: Plan | str | Path, strategy: str) -> Plan:
        """One, or a file of one. Raises InvalidInput where it is for another strategy."""
        plan = value if isinstance(value, Plan) else cls.load(value)
        if plan.strategy != strategy:
            raise InvalidInput(f"plan: one for {strategy} (found one for {plan.strategy})")
        return plan

    @classmethod
    def of(cls, question: Question, answer: Answer) -> Self:
        """Blocks are put in an order in which the stages follow each other."""
        chosen, other = answer.chosen, answer.runner_up
        names = [
            question.profile.blocks[at].name for stage in chosen.stages for at in stage.blocks
        ]
        return cls(
            strategy=chosen.strategy,
            workers=question.workers,
            stages=_stages(chosen),
            options={name: v for name, v in chosen.options.items() if name != "replicas"},
            batch=question.profile.batch,
            link=question.link.words,
            per_node=question.per_node if question.node_link else None,
            node_link=question.node_link.words if question.node_link else None,
            overlap=question.overlap,
            samples_per_s=chosen.samples_per_s,
            ratio_to_dp=chosen.samples_per_s / answer.data_parallel.samples_per_s,
            runner_up=None if other is None else RunnerUp(
                strategy=other.strategy, replicas=other.replicas,
                samples_per_s=other.samples_per_s, why=answer.why,
            ),
            notes=answer.notes,
            blocks=tuple(names),
        ).check()  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(describe(self))


def _stages(chosen: Candidate) -> tuple[PlanStage, ...]:
    found, first = [], 0
    for stage in chosen.stages:
        last = first + len(stage.blocks) - 1
        found.append(
            PlanStage(
                blocks=(first, last), replicas=stage.replicas, compute_ms=stage.compute_ms,
                sync_ms=stage.sync_ms, memory_bytes=stage.memory_bytes,
            )
        )  # fmt: skip
        first = last + 1
    return tuple(found)


# -- words ------------------------------------------------------------------------------------


def describe(plan: Plan) -> list[str]:
    """For people."""
    parts = "-".join(map(str, plan.replicas)) if len(plan.stages) > 1 else ""
    lines = [f"{plan.strategy}{' ' + parts if parts else ''} on {_many(plan.workers, 'worker')}"]
    told = []
    if plan.samples_per_s is not None:
        told.append(f"{plan.samples_per_s:,.0f} samples/s")
    if plan.ratio_to_dp is not None and plan.strategy != "allreduce":
        told.append(f"{plan.ratio_to_dp:.2f}x of data parallel")
    if plan.memory_bytes is not None:
        told.append(f"at most {size(plan.memory_bytes)} on a worker")
    if told:
        lines.append("predicted: " + ", ".join(told))
    lines.append(_circumstances(plan))
    lines.append("")
    lines += _table(plan)
    named = ", ".join(f"{name}={value}" for name, value in plan.options.items())
    if named:
        lines += ["", f"options: {named}"]
    if plan.runner_up is not None:
        other = plan.runner_up
        lines += [
            "",
            f"runner-up: {other.strategy}, {other.samples_per_s:,.0f} samples/s: {other.why}",
        ]
    lines += [f"note: {note}" for note in plan.notes]
    return lines


def _circumstances(plan: Plan) -> str:
    link = f"links of {plan.link}" if plan.link else "links unknown"
    if plan.node_link:
        link += f", {plan.node_link} within nodes of {plan.per_node}"
    overlap = {True: "with overlap", False: "without overlap", None: "overlap unknown"}
    return f"{link}, {overlap[plan.overlap]}, batch {plan.batch or 'unknown'}"


def _table(plan: Plan) -> list[str]:
    cut = (str(plan.slices),) if plan.slices > 1 else ()
    rows: list[tuple[str, ...]] = [
        ("STAGE", "REPLICAS", *("SLICES",) * len(cut), "COMPUTE", "SYNC", "MEMORY", "BLOCKS")
    ]
    for at, stage in enumerate(plan.stages):
        first, last = stage.blocks
        names = f"{first}" if first == last else f"{first} to {last}"
        if plan.blocks:
            ends = dict.fromkeys((plan.blocks[first], plan.blocks[last]))
            names += ": " + " … ".join(_cut(name) for name in ends)
        rows.append(
            (
                str(at), str(stage.replicas), *cut, _or_blank(stage.compute_ms, ms),
                _or_blank(stage.sync_ms, ms), _or_blank(stage.memory_bytes, size), names,
            )
        )  # fmt: skip
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _or_blank(value: float | None, words: Any) -> str:
    return "" if value is None else str(words(value))


def _cut(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


# -- the file ---------------------------------------------------------------------------------


def _without_none(value: Any) -> Any:
    """And with six digits of each number: a file is for people."""
    if isinstance(value, Mapping):
        return {name: _without_none(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_none(each) for each in value]
    if isinstance(value, float) and math.isfinite(value) and value:
        return round(value, max(0, 5 - math.floor(math.log10(abs(value)))))
    return value


class _Dumper(yaml.SafeDumper):
    """Short lists of numbers in one line, names one below the other."""


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    flow = all(isinstance(each, int) for each in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_Dumper.add_representer(list, _list)
