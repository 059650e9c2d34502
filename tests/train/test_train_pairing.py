"""The pairing of AD-PSGD over random schedules: nobody is left waiting, sums stay (spec 1.4)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from windlass.train.policies import pairing
from windlass.train.policies.pairing import Pairing


@dataclass
class Node:
    core: Pairing
    x: float
    birth: str
    kept: dict[str, float] = field(default_factory=dict)
    applied: dict[str, float] = field(default_factory=dict)
    committed: int = 0


@dataclass
class World:
    """Members and a network that delivers in any order, loses, and repeats. `heard_of` are the
    news of deaths and joins that each member has yet to hear, in order."""

    dice: random.Random
    size: int
    nodes: dict[int, Node] = field(default_factory=dict)
    flying: list[tuple[Node, int, pairing.Word, str, float]] = field(default_factory=list)
    settled: dict[str, tuple[Node, Node]] = field(default_factory=dict)
    heard_of: dict[int, list[tuple[str, int, str]]] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    lossy: bool = True
    births: int = 0

    def __post_init__(self) -> None:
        for rank in range(self.size):
            self.born(rank)

    def born(self, rank: int) -> None:
        self.births += 1
        birth = f"b{self.births}"
        node = Node(Pairing(rank, birth), float(self.dice.randrange(-(2**20), 2**20)), birth)
        for other, there in self.nodes.items():
            if other in self.dead:
                node.core.lost(other)
            else:
                node.core.joined(other, there.birth)
                if self.births <= self.size:
                    there.core.joined(rank, birth)
        self.nodes[rank] = node
        self.heard_of[rank] = []

    @property
    def alive(self) -> list[int]:
        return [rank for rank in self.nodes if rank not in self.dead]

    def do(
        self, rank: int, actions: list[pairing.Action], value: float = 0.0, by: Node | None = None
    ) -> None:
        node = self.nodes[rank]
        for action in actions:
            if isinstance(action, pairing.Settle):
                assert node.core.engaged is None, "its parameters are on offer to another"
                node.kept[action.ticket] = half = (value - node.x) / 2
                node.x += half
                node.applied[action.ticket] = half
                assert by is not None
                self.settled[action.ticket] = (node, by)
            elif isinstance(action, pairing.Subtract):
                node.x -= value
                assert action.ticket not in node.applied, "applied twice"
                node.applied[action.ticket] = value
            elif isinstance(action, pairing.Forget):
                del node.kept[action.ticket]
            elif isinstance(action, pairing.Closed):
                node.committed += action.committed
            else:
                with_it = {"offer": node.x, "commit": node.kept.get(action.ticket, 0.0)}
                if action.word == "commit":
                    assert action.ticket in node.kept
                sent = (node, action.to, action.word, action.ticket,
                        with_it.get(action.word, 0.0))  # fmt: skip
                copies = self.dice.choice((0, 1, 1, 1, 1, 1, 1, 2)) if self.lossy else 1
                self.flying += [sent] * copies

    def deliver(self, at: int) -> None:
        by, to, word, ticket, value = self.flying.pop(at)
        if to not in self.dead:
            heard = self.nodes[to].core.heard(by.core.rank, word, ticket, by.birth)
            self.do(to, heard, value, by)

    def hear(self, rank: int) -> None:
        what, about, birth = self.heard_of[rank].pop(0)
        core = self.nodes[rank].core
        self.do(rank, core.lost(about) if what == "lost" else core.joined(about, birth))

    def kill(self, rank: int) -> None:
        self.dead.add(rank)
        for other in self.alive:
            self.heard_of[other].append(("lost", rank, ""))

    def start_again(self, rank: int) -> None:
        self.dead.discard(rank)
        self.born(rank)
        for other in self.alive:
            if other != rank:
                self.heard_of[other].append(("joined", rank, self.nodes[rank].birth))

    def quiet_down(self) -> int:
        """The network is good from here on: everybody must come to rest. How many turns."""
        self.lossy = False
        for turn in range(200):
            for rank in self.alive:
                while self.heard_of[rank]:
                    self.hear(rank)
            while self.flying:
                self.deliver(self.dice.randrange(len(self.flying)))
            waiting = [(r, t) for r in self.alive for t in self.nodes[r].core.waiting]
            if not waiting:
                return turn
            for rank, ticket in waiting:
                self.do(rank, self.nodes[rank].core.timed_out(ticket))
        raise AssertionError(f"somebody waits for ever: {waiting}")


def may_initiate(rank: int, mode: str) -> bool:
    return mode == "all" or rank % 2 == 0


def neighbours(world: World, rank: int, mode: str) -> list[int]:
    return [r for r in range(world.size) if r != rank and (mode == "all" or r % 2 != rank % 2)]


def play(seed: int) -> World:
    """One random schedule: bipartite or all-initiate, deaths and joins at any point."""
    dice = random.Random(seed)
    world = World(dice, dice.randint(2, 5))
    mode = dice.choice(("all", "bipartite"))
    deadly = dice.random() < 0.4
    world.lossy = dice.random() < 0.6
    if dice.random() < 0.5:
        propose_all(world, mode)
    for _ in range(dice.randrange(8, 40)):
        roll = dice.random()
        rank = dice.choice(world.alive)
        core = world.nodes[rank].core
        if roll < 0.5 and world.flying:
            world.deliver(dice.randrange(len(world.flying)))
        elif roll < 0.7 and may_initiate(rank, mode):
            found = core.choices(neighbours(world, rank, mode))
            if found:
                world.do(rank, core.propose(dice.choice(found)))
        elif roll < 0.8 and core.waiting:
            world.do(rank, core.timed_out(dice.choice(core.waiting)))
        elif roll < 0.9 and world.heard_of[rank]:
            world.hear(rank)
        elif deadly and roll < 0.93 and len(world.alive) > 1:
            world.kill(rank)
        elif deadly and roll < 0.96 and world.dead:
            world.start_again(dice.choice(sorted(world.dead)))
    return world


def propose_all(world: World, mode: str) -> None:
    for rank in world.alive:
        if may_initiate(rank, mode):
            to = world.dice.choice(neighbours(world, rank, mode))
            world.do(rank, world.nodes[rank].core.propose(to))


def check_rest(world: World, seed: int) -> None:
    world.quiet_down()
    living = [world.nodes[rank] for rank in world.alive]
    for node in living:
        assert not node.kept and not node.core.offered and node.core.engaged is None, seed
        assert set(node.applied) <= set(world.settled), seed
    for ticket, (one, other) in world.settled.items():
        if any(one is node for node in living) and any(other is node for node in living):
            assert one.applied[ticket] == other.applied.get(ticket), (seed, ticket, "on one side")
    # Nobody is stuck: any two of the living can still exchange.
    for first in world.alive:
        for second in world.alive:
            if first != second:
                before = world.nodes[first].committed
                world.do(first, world.nodes[first].core.propose(second))
                world.quiet_down()
                assert world.nodes[first].committed == before + 1, (seed, first, second)


def sweep(seeds: range) -> None:
    for seed in seeds:
        check_rest(play(seed), seed)


def test_no_deadlock_over_random_schedules_with_deaths_joins_and_lost_messages() -> None:
    """1.4: no deadlock, including all-initiate; each exchange on both sides or on neither."""
    sweep(range(6_000))


@pytest.mark.soak
def test_no_deadlock_over_all_hundred_thousand_schedules() -> None:
    """1.4: over 1e5 random schedules."""
    sweep(range(100_000))


def test_when_all_initiate_at_once_at_least_one_exchange_goes_through() -> None:
    """1.4: all-initiate, no losses: the lowest rank of any circle wins, in any order."""
    for seed in range(3000):
        world = World(random.Random(seed), 2 + seed % 5)
        world.lossy = False
        propose_all(world, "all")
        world.quiet_down()
        assert sum(node.committed for node in world.nodes.values()) >= 2, seed


def test_the_sum_stays_exactly_while_nobody_dies() -> None:
    """1.4: g = 0, sum of x_i conserved; halves of whole numbers are exact in float64."""
    for seed in range(1500):
        dice = random.Random(seed)
        world = World(dice, 4)
        before = sum(node.x for node in world.nodes.values())
        for _ in range(60):
            rank = dice.randrange(4)
            if dice.random() < 0.3:
                world.do(rank, world.nodes[rank].core.propose(dice.randrange(4)))
            elif world.flying and dice.random() < 0.8:
                world.deliver(dice.randrange(len(world.flying)))
            elif world.nodes[rank].core.waiting:
                ticket = dice.choice(world.nodes[rank].core.waiting)
                world.do(rank, world.nodes[rank].core.timed_out(ticket))
        world.quiet_down()
        assert sum(node.x for node in world.nodes.values()) == before, seed


def test_two_members_agree_after_one_exchange() -> None:
    world = World(random.Random(1), 2)
    world.lossy = False
    world.do(0, world.nodes[0].core.propose(1))
    world.quiet_down()
    assert world.nodes[0].x == world.nodes[1].x


def test_random_pairs_of_a_complete_graph_lose_one_part_in_p_minus_one_of_their_variance() -> None:
    """1.4: E[V'] = V (1 - 1/(p-1)), over all pairs, so without chance."""
    for size in (2, 3, 4, 5):
        world = World(random.Random(size), size)
        values = [node.x for node in world.nodes.values()]
        mean = sum(values) / size
        before = sum((v - mean) ** 2 for v in values)
        after = []
        for one in range(size):
            for other in range(size):
                if one == other:
                    continue
                for rank, value in enumerate(values):
                    world.nodes[rank].x = value
                world.lossy = False
                world.do(one, world.nodes[one].core.propose(other))
                world.quiet_down()
                after.append(sum((node.x - mean) ** 2 for node in world.nodes.values()))
        expected = before * (1 - 1 / (size - 1))
        assert sum(after) / len(after) == pytest.approx(expected, rel=1e-12, abs=1e-3)


def test_a_silent_member_is_left_out_of_the_choices_until_it_speaks() -> None:
    core = Pairing(0)
    [sent] = core.propose(1)
    assert isinstance(sent, pairing.Send)
    [closed] = core.timed_out(sent.ticket)
    assert isinstance(closed, pairing.Closed) and not closed.committed
    assert core.choices([1, 2]) == [2]
    assert core.heard(1, "offer", sent.ticket) == [pairing.Send(1, "abort", sent.ticket)]
    assert core.choices([1, 2]) == [1, 2]


def test_a_commit_that_was_lost_is_said_again_when_asked() -> None:
    one, other = Pairing(0), Pairing(1)
    [sent] = one.propose(1)
    assert isinstance(sent, pairing.Send)
    other.heard(0, "propose", sent.ticket)
    one.heard(1, "offer", sent.ticket)  # and the commit gets lost
    assert other.timed_out(sent.ticket) == [pairing.Send(0, "ask", sent.ticket)]
    assert other.choices([0]) == [0] and other.engaged is None, "others are not kept waiting"
    assert one.heard(1, "ask", sent.ticket) == [pairing.Send(1, "commit", sent.ticket)]
    assert pairing.Subtract(sent.ticket) in other.heard(0, "commit", sent.ticket)
    assert pairing.Subtract(sent.ticket) not in other.heard(0, "commit", sent.ticket)
