"""A member goes only where its node offers all that it must have beside amounts."""

from __future__ import annotations

import random

import pytest

from windlass.scheduler.core import Core
from windlass.scheduler.events import Need, NodeDown, NodeUp, Offer, Start, Submit

APART = ("isolation-1",)


def job(name: str, *labels: str, members: int = 1, gpus: int = 0, number: int = 1) -> Submit:
    need = Need("worker", members, cpus_milli=1000, gpus=gpus, labels=labels)
    return Submit(name, "red", (need,), number, number)


def node(name: str, *labels: str, gpus: int = 0, model: str = "") -> NodeUp:
    return NodeUp(Offer(name, cpus_milli=4000, gpus=gpus, gpu_model=model, labels=labels))


def placed(core: Core, *events: object) -> dict[str, set[str]]:
    decided = core.apply(list(events), 0)  # type: ignore[arg-type]
    return {d.job_id: {s.node for s in d.seats} for d in decided if isinstance(d, Start)}


def test_a_job_that_must_be_kept_apart_goes_where_that_can_be() -> None:
    core = Core()
    found = placed(core, node("plain"), node("apart", *APART), job("a", *APART, members=4))
    assert found == {"a": {"apart"}}
    assert placed(core, job("b", *APART, number=2)) == {}, "the other node is free, and no use"
    assert placed(core, job("c", number=3)) == {"c": {"plain"}}


def test_a_job_that_no_node_can_keep_apart_is_told_what_there_is() -> None:
    core = Core()
    core.apply([node("plain"), node("apart", *APART)], 0)
    assert core.never_fits(job("a", *APART)) is None
    why = core.never_fits(job("a", "isolation-2"))
    assert why == "no node offers isolation-2 (there are: isolation-1)"


def test_a_node_that_learns_to_keep_jobs_apart_takes_those_that_waited() -> None:
    core = Core()
    assert placed(core, node("n"), job("a", *APART)) == {}
    assert placed(core, node("n", *APART)) == {"a": {"n"}}


def test_labels_and_gpu_models_hold_together() -> None:
    core = Core()
    events = [node("n0", *APART, gpus=1, model="x"), node("n1", gpus=1, model="y")]
    need = Need("worker", 1, gpus=1, gpu_models=("y",), labels=APART)
    submit = Submit("a", "red", (need,), 1, 1)
    assert placed(core, *events, submit) == {}
    assert placed(core, node("n2", *APART, gpus=1, model="y")) == {"a": {"n2"}}


@pytest.mark.parametrize("seed", range(20))
def test_no_seat_is_ever_on_a_node_that_lacks_a_label(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [(), ("a",), ("a", "b"), ("b",)]
    core, offers, wishes = Core(), {}, {}
    for step in range(60):
        if chance.random() < 0.3:
            name, labels = f"n{chance.randrange(8)}", chance.choice(kinds)
            if chance.random() < 0.2:
                core.apply([NodeDown(name)], step)
                continue
            offers[name] = labels
            decided = core.apply([node(name, *labels, gpus=2)], step)
        else:
            labels = chance.choice(kinds)
            wishes[f"j{step}"] = labels
            submit = job(f"j{step}", *labels, members=chance.randint(1, 3),
                         gpus=chance.randint(0, 1), number=step)  # fmt: skip
            decided = core.apply([submit], step)
        for start in decided:
            if isinstance(start, Start):
                for seat in start.seats:
                    assert set(wishes[start.job_id]) <= set(offers[seat.node])
