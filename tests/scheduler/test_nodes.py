"""The free index against a model that counts everything anew, over random lives of a cluster."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.scheduler import rooms
from windlass.scheduler.events import Need, Offer, Seat
from windlass.scheduler.nodes import Form, Nodes

MODELS = ("", "A", "H")


@st.composite
def offers(draw: st.DrawFn, name: str) -> Offer:
    gpus = draw(st.integers(0, 4))
    return Offer(
        name,
        cpus_milli=draw(st.integers(0, 8)) * 1000,
        memory_bytes=draw(st.integers(0, 8)) << 30,
        gpus=gpus,
        slots=draw(st.sampled_from([2, 1 << 30])),
        gpu_model=draw(st.sampled_from(MODELS)) if gpus else "",
        rack=draw(st.sampled_from(["", "r0", "r1"])),
        block=draw(st.sampled_from(["", "b0", "b1"])),
    )


@st.composite
def needs(draw: st.DrawFn, role: str = "w", elastic: bool = False) -> Need:
    kind = draw(st.sampled_from(["cpu", "whole", "share"]))
    count = draw(st.integers(1, 6))
    return Need(
        role,
        count,
        cpus_milli=draw(st.sampled_from([0, 500, 1000, 3000])),
        memory_bytes=draw(st.sampled_from([0, 1 << 30, 3 << 30])),
        gpus=draw(st.integers(1, 3)) if kind == "whole" else 0,
        gpu_milli=draw(st.sampled_from([100, 350, 600])) if kind == "share" else 0,
        slots=draw(st.sampled_from([0, 1])),
        gpu_models=draw(st.sampled_from([(), ("A",), ("A", "H")])) if kind != "cpu" else (),
        minimum=draw(st.integers(1, count)) if elastic else 0,
    )


class Model:
    """What there is and who holds what; every answer is counted from that."""

    def __init__(self) -> None:
        self.offers: dict[str, Offer] = {}
        self.up: dict[str, bool] = {}
        self.held: list[tuple[Form, tuple[Seat, ...]]] = []

    def free(self, name: str) -> tuple[list[int], list[int]]:
        """cpus, memory, slots; and milli by device (as many as were ever spoken of)."""
        offer = self.offers[name]
        amounts = [offer.cpus_milli, offer.memory_bytes, offer.slots]
        devices = [1000 if number < offer.gpus else 0 for number in range(4)]
        for form, seats in self.held:
            by_role = {need.role: need for need in form.needs}
            for seat in seats:
                if seat.node == name:
                    need = by_role[seat.role]
                    amounts[0] -= need.cpus_milli
                    amounts[1] -= need.memory_bytes
                    amounts[2] -= need.slots
                    for number in seat.gpus:
                        devices[number] -= need.gpu_milli or 1000
        return amounts, devices

    def room(self, need: Need, name: str) -> int:
        """By putting members there one by one until one does not fit."""
        offer = self.offers[name]
        if not self.up[name] or need.gpu_models and offer.gpu_model not in need.gpu_models:
            return 0
        (cpus, memory, slots), devices = self.free(name)
        wishes = ((cpus, need.cpus_milli), (memory, need.memory_bytes), (slots, need.slots))
        room = min([1 << 30] + [max(0, free) // wish for free, wish in wishes if wish])
        if need.gpus:
            room = min(room, devices.count(1000) // need.gpus)
        if need.gpu_milli:
            room = min(room, sum(max(0, milli) // need.gpu_milli for milli in devices))
        return room


def agree(nodes: Nodes, model: Model, wishes: list[Need]) -> None:
    """S-I1: every column and every row is what the model counts."""
    for node, name in enumerate(nodes.names):
        (cpus, memory, slots), devices = model.free(name)
        assert nodes.now.cpus[node] == cpus
        assert nodes.now.memory[node] == memory
        assert nodes.now.slots[node] == slots
        width = nodes.now.gpu.shape[1]
        assert nodes.now.gpu[node].tolist() == devices[:width]
        assert not any(devices[width:])
        assert nodes.now.whole[node] == devices.count(1000)
    for need in wishes:
        expected = [model.room(need, name) for name in nodes.names]
        assert nodes.room(need).tolist() == expected
        assert nodes.room(need, columns=nodes.now.copy()).tolist() == expected
        for count in {1, max(1, sum(expected)), sum(expected) + 1}:
            form = nodes.form((Need(**{**_fields(need), "count": count, "minimum": 0}),))
            assert nodes.could(form) == (sum(expected) >= count)


def _fields(need: Need) -> dict[str, object]:
    return {name: getattr(need, name) for name in need.__slots__}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_index_never_drifts_whatever_happens_to_the_nodes(data: st.DataObject) -> None:
    nodes, model = Nodes(), Model()
    wishes = [data.draw(needs()) for _ in range(3)]
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["up", "up", "down", "start", "start", "start", "end"]))
        name = f"n{data.draw(st.integers(0, 4))}"
        if action == "up":
            offer = data.draw(offers(name))
            nodes.node_up(offer)
            model.offers[name], model.up[name] = offer, True
        elif action == "down":
            nodes.node_down(name)
            if name in model.up:
                model.up[name] = False
        elif action == "start":
            roles = [data.draw(needs("a", data.draw(st.booleans())))]
            if data.draw(st.booleans()):
                roles.append(data.draw(needs("b")))
            form = nodes.form(roles)
            seats = nodes.place(form) if nodes.could(form) else None
            if seats is not None:
                nodes.take(form.needs, seats)
                model.held.append((form, seats))
        elif model.held:
            at = data.draw(st.integers(0, len(model.held) - 1))
            form, seats = model.held.pop(at)
            nodes.give(form.needs, seats)
        if data.draw(st.booleans()):
            agree(nodes, model, wishes)
    agree(nodes, model, wishes)
    for form, seats in reversed(model.held):
        nodes.give(form.needs, seats)
    assert (nodes.now.amounts == nodes.capacity.amounts).all()
    assert (nodes.now.gpu == nodes.capacity.gpu).all()


def cluster(count: int, gpus: int = 8, **more: object) -> Nodes:
    nodes = Nodes()
    for number in range(count):
        nodes.node_up(Offer(f"n{number}", 96_000, 1 << 40, gpus, **more))  # type: ignore[arg-type]
    return nodes


def test_equal_wishes_are_one_form_and_its_totals_are_those_of_the_admission_size() -> None:
    nodes = cluster(1)
    elastic = (Need("w", 8, 1000, 1 << 30, gpus=2, minimum=3), Need("ps", 1, 500))
    form = nodes.form(elastic, "rack", True)
    assert nodes.form(list(elastic), "rack", True) is form
    assert nodes.form(elastic) is not form
    assert (form.members, form.gpu_milli, form.cpus_milli) == (4, 6000, 3500)
    assert form.memory_bytes == 3 << 30


def test_a_node_that_comes_back_smaller_owes_and_has_no_room_until_it_is_even() -> None:
    nodes = cluster(1, gpus=4)
    form = nodes.form((Need("w", 1, 1000, gpus=3),))
    seats = nodes.place(form)
    assert seats is not None
    nodes.take(form.needs, seats)
    nodes.node_up(Offer("n0", 500, 1 << 40, 1))
    one = nodes.form((Need("w", 1, gpus=1),))
    assert not nodes.could(one)
    assert nodes.now.cpus[0] == -500
    assert nodes.room(Need("w", 1, 100)).tolist() == [0]
    nodes.give(form.needs, seats)
    assert nodes.could(one)
    assert nodes.now.gpu[0].tolist() == [1000, 0, 0, 0]


def test_seats_may_be_held_on_a_node_before_it_is_heard_of() -> None:
    nodes = Nodes()
    need = Need("w", 1, 1000, gpus=1)
    nodes.take((need,), (Seat("w", 0, "late", (1,)),))
    assert not nodes.could(nodes.form((need,)))
    nodes.node_up(Offer("late", 4000, 1 << 30, 2))
    (seat,) = nodes.place(nodes.form((need,))) or ()
    assert seat == ("w", 0, "late", (0,))


def test_a_node_that_is_down_takes_nothing_and_keeps_what_is_held() -> None:
    nodes = cluster(1)
    form = nodes.form((Need("w", 1, gpus=1),))
    nodes.take(form.needs, nodes.place(form) or ())
    nodes.node_down("n0")
    nodes.node_down("unheard-of")
    assert not nodes.could(form)
    assert nodes.place(form) is None
    nodes.node_up(nodes.offers[0])
    assert nodes.room(form.needs[0]).tolist() == [7]


def test_a_new_model_is_seen_by_forms_that_were_asked_for_before_it_came() -> None:
    nodes = cluster(1, gpu_model="A")
    wish = nodes.form((Need("w", 1, gpus=1, gpu_models=("B", "H")),))
    free = nodes.form((Need("w", 9, gpus=1),))
    assert not nodes.could(wish)
    assert not nodes.could(free)
    nodes.node_up(Offer("late", 1000, 1 << 30, 1, gpu_model="H"))
    assert nodes.could(wish)
    assert nodes.could(free)
    assert (nodes.place(wish) or ())[0].node == "late"


def test_any_number_of_forms_takes_bounded_memory_and_stays_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "_ROWS", 64)
    nodes = cluster(50)
    for number in range(1, 1500):
        form = nodes.form((Need("w", 1, cpus_milli=number * 64, gpus=1 + number % 8),))
        assert nodes.could(form)
        again = nodes.form((Need("w", 400, cpus_milli=1 + number % 7, gpus=1),))
        room = int(nodes.now.room(again.parts[0][0]).sum())
        assert nodes.could(again) == (room >= 400)
        if number % 5 == 0:
            seats = nodes.place(form)
            assert seats is not None
            nodes.take(form.needs, seats)
            held = (form.needs, seats)
        if number % 5 == 2 and number > 5:
            nodes.give(*held)
    assert nodes._rooms._room.shape[0] <= 64


def test_a_worker_on_5000_nodes_is_asked_for_placed_and_released_quickly() -> None:
    nodes = cluster(5000)
    form = nodes.form((Need("w", 1, 1000, 1 << 30, gpus=1),))
    best = 1.0
    for _ in range(5):
        started = time.process_time()
        for _ in range(200):
            assert nodes.could(form)
            seats = nodes.place(form)
            assert seats is not None
            nodes.take(form.needs, seats)
            nodes.could(form)
            nodes.give(form.needs, seats)
        best = min(best, (time.process_time() - started) / 200)
    assert best < 150e-6  # of this process's own time; 35 µs on an idle core


def test_what_if_copies_do_not_touch_what_is() -> None:
    nodes = cluster(3)
    before = nodes.now.amounts.copy()
    what_if = nodes.now.copy()
    form = nodes.form((Need("w", 30, 500, 1 << 20, gpu_milli=700),))
    seats = nodes.place(form, columns=what_if)
    assert seats is None
    form = nodes.form((Need("w", 24, 500, 1 << 20, gpu_milli=700),))
    seats = nodes.place(form, columns=what_if)
    assert seats is not None
    what_if.take(form.needs, seats)
    assert nodes.place(form, columns=what_if) is None
    what_if.give(form.needs, seats)
    assert np.array_equal(what_if.amounts, before)
    assert np.array_equal(nodes.now.amounts, before)


def test_many_seats_at_once_are_the_same_as_one_by_one() -> None:
    nodes = cluster(40)
    needs = (Need("w", 90, 500, 1 << 20, gpus=2), Need("s", 60, 100, gpu_milli=300))
    form = nodes.form(needs)
    seats = nodes.place(form)
    assert seats is not None
    single = nodes.now.copy()
    for seat in seats:
        single.take(needs, (seat,))
    nodes.take(needs, seats)
    assert np.array_equal(nodes.now.amounts, single.amounts)
    assert np.array_equal(nodes.now.gpu, single.gpu)
