"""1.3: when a pull may return and what a push does, over random delays, kills and joins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.train.policies.consistency import (
    Apply,
    Decision,
    Policy,
    Push,
    Scaled,
    Softsync,
    Ssp,
)
from windlass.train.policies.keys import owners


class World:
    """Some workers and one server: who has read what, pushed what, and what became of it."""

    def __init__(self, policy: Policy, workers: int) -> None:
        self.policy = policy
        policy.clocks = dict.fromkeys(range(workers), 0)
        self.version = 0
        self.numbers: dict[int, int] = {}
        self.holding: dict[int, int] = {}
        """Workers that have read and not pushed: the version they read."""
        self.pushed: dict[Push, int] = {}
        """And the clock in which it was."""
        self.applied: dict[Push, int] = {}
        self.dropped: list[Push] = []
        self.groups: list[tuple[Push, ...]] = []
        self.dead: set[int] = set()

    def read(self, worker: int) -> None:
        assert self.policy.may_pull(worker)
        self.holding[worker] = self.version

    def push(self, worker: int) -> None:
        self.numbers[worker] = self.numbers.get(worker, 0) + 1
        push = Push(worker, self.numbers[worker], self.holding.pop(worker))
        self.pushed[push] = self.policy.clocks[worker]
        self.act(self.policy.push(push, self.version))

    def act(self, decisions: list[Decision]) -> None:
        for each in decisions:
            if isinstance(each, Apply):
                for push in each.pushes:
                    assert push not in self.applied
                    self.applied[push] = self.version
                self.groups.append(each.pushes)
                self.version += 1
            else:
                self.dropped.append(each.push)

    def lose(self, worker: int) -> None:
        self.dead.add(worker)
        self.holding.pop(worker, None)
        self.act(self.policy.loses(worker, self.version))

    def join(self, worker: int) -> None:
        self.dead.discard(worker)
        self.policy.joins(worker)

    def counts_add_up(self) -> None:
        pending = set(self.policy.pending)
        assert set(self.pushed) == set(self.applied) | set(self.dropped) | pending
        assert len(self.pushed) == len(self.applied) + len(self.dropped) + len(pending)


def drive(world: World, data: st.DataObject, steps: int, at_read: object = None) -> None:
    """Random turns: each worker reads when it may, pushes when it has read; some die or come."""
    for _ in range(steps):
        alive = world.policy.at_work
        able = [("push", w) for w in world.holding]
        able += [("read", w) for w in alive if w not in world.holding and world.policy.may_pull(w)]
        assert able or not alive, f"nobody can go on: {world.policy}"
        if len(alive) > 1:
            able += [("lose", w) for w in alive[:1]] + [("finish", w) for w in alive[-1:]]
        able += [("join", w) for w in sorted(world.dead)]
        if not able:
            break
        what, worker = data.draw(st.sampled_from(able))
        if what == "read":
            world.read(worker)
            if callable(at_read):
                at_read(world, worker)
        elif what == "push":
            world.push(worker)
        elif what == "lose":
            world.lose(worker)
        elif what == "join":
            world.join(worker)
        else:
            world.holding.pop(worker, None)
            world.act(world.policy.finishes(worker, world.version))
        world.counts_add_up()
    for worker in list(world.policy.at_work):
        world.act(world.policy.finishes(worker, world.version))
    world.counts_add_up()
    assert not world.policy.pending, "what was pushed is in when all are done"


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(0, 4), st.integers(1, 5))
def test_ssp_holds_at_every_read(data: st.DataObject, s: int, workers: int) -> None:
    """1.3 (3): what a worker at clock c reads has every update of clocks up to c-s-1."""

    def look(world: World, reader: int) -> None:
        clock = world.policy.clocks[reader]
        for push, at in world.pushed.items():
            if at <= clock - s - 1:
                assert push in world.applied, f"at clock {clock} {push} of clock {at} is missing"
        for other in world.policy.at_work:
            assert world.policy.clocks[other] >= clock - s

    drive(World(Ssp(s=s), workers), data, 60, look)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.booleans(), st.booleans())
def test_softsync_applies_whole_groups_and_loses_nothing(
    data: st.DataObject, s: int, workers: int, distinct: bool, drop: bool
) -> None:
    """1.3 (4): pushed = applied + dropped + pending; the workers of a group are distinct."""
    world = World(Softsync(s=min(s, workers), distinct=distinct, drop_late=drop), workers)
    drive(world, data, 60)
    for group in world.groups:
        assert len(group) <= min(s, workers)
        if distinct:
            assert len({push.worker for push in group}) == len(group)
    if not drop:
        assert not world.dropped
    else:
        assert all(world.applied[push] == push.version for push in world.applied)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5))
def test_async_never_makes_anybody_wait(data: st.DataObject, workers: int) -> None:
    world = World(Policy(), workers)
    drive(world, data, 40)
    assert all(len(group) == 1 for group in world.groups)


@given(st.integers(0, 50), st.integers(0, 50))
def test_scaled_divides_the_rate_by_the_staleness(version: int, behind: int) -> None:
    """1.3 (6): eta_eff times max(1, s) is eta."""
    (decision,) = Scaled(clocks={0: 0}).push(Push(0, 1, version), version + behind)
    assert isinstance(decision, Apply)
    assert decision.factor * max(1, behind) == pytest.approx(1.0, abs=1e-15)


def test_a_fast_worker_stops_at_the_bound_and_the_slow_one_frees_it() -> None:
    policy = Ssp(s=2, clocks={0: 0, 1: 0})
    for n in range(2):
        assert policy.may_pull(0)
        policy.push(Push(0, n + 1, n), n)
    assert policy.may_pull(0)
    policy.push(Push(0, 3, 2), 2)
    assert not policy.may_pull(0) and policy.waited_for(0) == [1]
    policy.push(Push(1, 1, 0), 3)
    assert policy.may_pull(0)


@pytest.mark.parametrize(("kind", "s"), [(Ssp, 1), (Ssp, 0), (Softsync, 3)])
def test_a_dead_worker_leaves_at_once_and_comes_back_at_the_slowest(
    kind: type[Ssp | Softsync], s: int
) -> None:
    policy: Policy = kind(s=s)
    world = World(policy, 3)
    for _ in range(2):
        for worker in (0, 1):
            if policy.may_pull(worker):
                world.read(worker)
                world.push(worker)
    assert not (policy.may_pull(0) and policy.may_pull(1)), "they wait for worker 2"
    world.lose(2)
    assert policy.may_pull(0) and policy.may_pull(1)
    world.read(0)
    world.push(0)
    policy.joins(2)
    assert policy.clocks[2] == min(policy.clocks[0], policy.clocks[1])


def test_backup_workers_drop_what_comes_late() -> None:
    world = World(Softsync(s=2, drop_late=True), 3)
    for worker in range(3):
        world.read(worker)
    world.push(2)
    world.push(0)
    world.push(1)
    assert [push.worker for push in world.groups[0]] == [0, 2]
    assert [push.worker for push in world.dropped] == [1]
    assert all(world.policy.may_pull(worker) for worker in range(3))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(0, 8), st.integers(0, 200))
def test_a_lost_owner_leaves_its_range_to_its_successor(servers: int, gone: int, key: int) -> None:
    """1.18: nothing else moves."""
    names = [f"server {n}" for n in range(servers)]
    lost = names[gone % servers]
    before = owners(key, names, 2)
    after = owners(key, [name for name in names if name != lost], 2)
    if before[0] == lost:
        assert after[0] == before[1]
    else:
        assert after[0] == before[0]
    assert len(set(before)) == 2


def test_ranges_are_spread_over_the_servers() -> None:
    names = [f"server {n}" for n in range(4)]
    found = [owners(key, names, 1)[0] for key in range(400)]
    assert all(40 <= found.count(name) <= 180 for name in names)
    assert owners(1, [], 2) == [] and owners(1, ["a"], 2) == ["a"]
