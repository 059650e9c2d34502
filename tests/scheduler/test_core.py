"""The scheduler's core: whole gangs, first come first served, never more than there is."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from windlass.core.resources import Node, Resources
from windlass.scheduler.core import (
    Ask,
    Core,
    Decision,
    NodeDown,
    NodeUp,
    Release,
    Restore,
    Start,
    Submit,
    Withdraw,
    never_fits,
)

GIB = 2**30


def node(name: str, cpus: int = 4, memory: int = 8, gpus: int = 2, slots: int = 16) -> Node:
    capacity = Resources(cpus_milli=cpus * 1000, memory_bytes=memory * GIB, gpus=gpus, slots=slots)
    return Node(
        name=name, engine="local", capacity=capacity, gpu_ids=tuple(str(i) for i in range(gpus))
    )


def ask(
    count: int = 1, gpus: int = 0, cpus: int = 0, memory: int = 0, role: str = "worker"
) -> Ask:
    each = Resources(cpus_milli=cpus * 1000, memory_bytes=memory * GIB, gpus=gpus, slots=1)
    return Ask(role, count, each)


def started(decisions: list[Decision]) -> list[str]:
    return [decision.job_id for decision in decisions]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    core = Core()
    core.apply(NodeUp(node("a")))
    assert core.apply(Submit("j", (1,), (ask(count=3, gpus=1),))) == []
    (start,) = core.apply(NodeUp(node("b")))
    assert len(start.placement) == 3
    assert {(p.node, p.gpu_ids) for p in start.placement} == {
        ("a", ("0",)), ("a", ("1",)), ("b", ("0",)),
    }  # fmt: skip


def test_nobody_overtakes_the_first() -> None:
    core = Core()
    core.apply(NodeUp(node("a")))
    assert started(core.apply(Submit("big", (1,), (ask(gpus=2),)))) == ["big"]
    assert core.apply(Submit("bigger", (2,), (ask(count=2, gpus=1),))) == []
    assert core.apply(Submit("small", (3,), (ask(),))) == []
    assert started(core.apply(Release("big"))) == ["bigger", "small"]


def test_a_job_that_comes_back_keeps_its_turn() -> None:
    core = Core()
    core.apply(NodeUp(node("a", gpus=1)))
    core.apply(Submit("first", (1,), (ask(gpus=1),)))
    core.apply(Submit("second", (2,), (ask(gpus=1),)))
    core.apply(Submit("third", (3,), (ask(gpus=1),)))
    core.apply(Submit("zeroth", (0,), (ask(gpus=1),)))
    assert started(core.apply(Release("first"))) == ["zeroth"]


def test_a_higher_priority_goes_first() -> None:
    core = Core()
    core.apply(NodeUp(node("a", gpus=1)))
    core.apply(Submit("runs", (-50, 1), (ask(gpus=1),)))
    core.apply(Submit("low", (-10, 2), (ask(gpus=1),)))
    core.apply(Submit("high", (-90, 3), (ask(gpus=1),)))
    assert started(core.apply(Release("runs"))) == ["high"]


def test_why_names_what_is_missing_and_who_is_ahead() -> None:
    core = Core()
    core.apply(NodeUp(node("a", gpus=2)))
    core.apply(Submit("one", (1,), (ask(gpus=2),)))
    core.apply(Submit("two", (2,), (ask(gpus=1),)))
    core.apply(Submit("three", (3,), (ask(),)))
    reason = core.why("two")
    assert reason is not None
    assert reason.code == "waiting-nodes"
    assert reason.sentence == "needs 1 GPU, 0 GPUs free"
    assert reason.missing == {"gpus": 1}
    later = core.why("three")
    assert later is not None and later.sentence.startswith("1 job ahead of it")
    assert core.why("one") is None


def test_fragments_are_named_as_such() -> None:
    core = Core()
    for name in ("a", "b"):
        core.apply(NodeUp(node(name, gpus=2)))
    core.apply(Submit("x", (1,), (ask(count=2, gpus=1, role="w"),)))
    core.apply(Submit("y", (2,), (ask(gpus=2),)))
    core.apply(Submit("z", (3,), (ask(gpus=2),)))
    reason = core.why("z")
    assert reason is not None and reason.code.startswith("waiting-nodes")


def test_what_can_never_fit_says_why() -> None:
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    assert never_fits((ask(gpus=4),), nodes) is None
    assert never_fits((ask(gpus=8),), nodes) == (
        "a member of role worker wants 8 GPUs, the largest node has 4 GPUs"
    )
    assert "all nodes together have 8 GPUs" in str(never_fits((ask(count=3, gpus=4),), nodes))
    assert never_fits((ask(),), []) == "there is no node"


def test_a_node_that_goes_down_takes_nothing_new_and_keeps_what_it_has() -> None:
    core = Core()
    core.apply(NodeUp(node("a")))
    core.apply(Submit("x", (1,), (ask(gpus=1),)))
    core.apply(NodeDown("a"))
    assert core.apply(Submit("y", (2,), (ask(),))) == []
    assert core.apply(Release("x")) == []
    assert started(core.apply(NodeUp(node("a")))) == ["y"]


class Any(RuleBasedStateMachine):
    """Any order of events, with repeats: what runs always fits, and a rebuilt core agrees."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()
        self.nodes: dict[str, Node] = {}
        self.asks: dict[str, tuple[Ask, ...]] = {}
        self.running: dict[str, Start] = {}
        self.order = 0

    @initialize()
    def begin(self) -> None:
        for name in ("a", "b"):
            self.nodes[name] = node(name)
            self.take(self.core.apply(NodeUp(self.nodes[name])))

    def take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            assert decision.job_id not in self.running
            self.running[decision.job_id] = decision

    @rule(target=jobs, count=st.integers(1, 5), gpus=st.integers(0, 3), cpus=st.integers(0, 5))
    def submit(self, count: int, gpus: int, cpus: int) -> str:
        self.order += 1
        name = f"j{self.order}"
        self.asks[name] = (ask(count=count, gpus=gpus, cpus=cpus), ask(role="ps", memory=1))
        self.take(self.core.apply(Submit(name, (self.order,), self.asks[name])))
        return name

    @rule(job=jobs)
    def submit_again(self, job: str) -> None:
        if job in self.running:
            self.take(self.core.apply(Submit(job, (int(job[1:]),), self.asks[job])))

    @rule(job=consumes(jobs))
    def end(self, job: str) -> None:
        self.running.pop(job, None)
        self.take(self.core.apply(Release(job)))
        self.take(self.core.apply(Withdraw(job)))

    @rule()
    def rebuild(self) -> None:
        fresh = Core()
        for each in self.nodes.values():
            fresh.apply(NodeUp(each))
        for job, start in self.running.items():
            assert fresh.apply(Restore(job, self.asks[job], start.placement)) == []
        waiting = [job for job in self.core._queue]
        for job in waiting:
            assert fresh.apply(Submit(job, (int(job[1:]),), self.asks[job])) == []
        assert fresh.free() == self.core.free()
        self.core = fresh

    @invariant()
    def nothing_is_exceeded(self) -> None:
        for name, each in self.nodes.items():
            used, ids = Resources(), []
            for start in self.running.values():
                sizes = {a.role: a.each for a in self.asks[start.job_id]}
                for placed in start.placement:
                    if placed.node == name:
                        used = used.plus(sizes[placed.role])
                        ids += placed.gpu_ids
                        assert len(placed.gpu_ids) == sizes[placed.role].gpus
            assert used.fits(each.capacity)
            assert len(ids) == len(set(ids))
            assert self.core.free()[name] == each.capacity.minus(used)

    @invariant()
    def gangs_are_whole(self) -> None:
        for start in self.running.values():
            assert len(start.placement) == sum(a.count for a in self.asks[start.job_id])


Any.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = Any.TestCase
