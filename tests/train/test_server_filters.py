"""1.6 and 1.18 between workers and servers: what a push goes through, what a pull need not bring,
and what a single pull may ask for. Members are threads, but in the last test."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import windlass.train as wt
from windlass.core.errors import InvalidInput
from windlass.train.counters import Counters
from windlass.train.policies.compression import BF16, FP16, OneBit, PowerSGD, TopK
from windlass.train.policies.consistency import EVER, Policy, Push, Scaled, Ssp, delay_of
from windlass.train.policies.filters import Filter
from windlass.train.registry import choose
from windlass.train.runners.filtering import Decoder, Outbox, shapes_of
from windlass.train.runners.server import GradientRunner
from windlass.train.runners.serverstrategies import (
    Async,
    BackupWorkers,
    GradientStrategy,
    ScaledAsync,
    ServerStrategy,
    SoftSync,
    StaleSynchronous,
)
from windlass.train.runners.serving import ParameterServing
from windlass.train.runners.shard import Row
from windlass.train.seat import Seat
from windlass.train.state.flat import Layout, Staging
from windlass.train.task import Task
from windlass.train.testing.replay import replay
from windlass.train.testing.tasks import flat, network, regression, samples
from windlass.train.testing.town import Town

Make = Callable[[], Task]
Ask = Callable[[Seat, int], Any]
"""What a worker's step asks for, by rank and step."""


class Identity(Filter):
    name: ClassVar[str] = "identity"
    has_feedback: ClassVar[bool] = True
    by_column: ClassVar[bool] = True

    def encode(self, matrix: Tensor) -> list[Tensor]:
        return [matrix]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return parts[0].view(like.shape)


class Rounded(wt.Filter):
    """A user's own: small whole numbers and their unit. Without annotations, as people write."""

    name = "rounded"
    has_feedback = True
    steps: int = 127

    def encode(self, matrix: Tensor) -> list[Tensor]:
        unit = (matrix.abs().max() / self.steps).clamp_min(1e-30)
        return [(matrix / unit).round().to(torch.int8), unit.view(1)]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return parts[0].to(like.dtype) * parts[1]


class Broken(Identity):
    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        if "server" in threading.current_thread().name:
            raise ValueError("no such code")
        return super().decode(parts, like)


FILTERS = [
    OneBit(), OneBit(warmup=2, threshold="mean"), TopK(ratio=0.1, warmup=3),
    TopK(ratio=0.1, momentum=0.9, clip=0.5), FP16(), BF16(), Rounded(), Identity(),
]  # fmt: skip
LOSSY = [each for each in FILTERS if each.has_feedback and not isinstance(each, Identity)]


def words(value: Any) -> str:
    return value.words() if isinstance(value, Filter) else str(value)


def member(
    seat: Seat, strategy: ServerStrategy, make: Make, steps: int, ask: Ask | None = None
) -> Any:
    task = make()
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            assert isinstance(serving, ParameterServing)
            serving.run()
            return serving.rows()
    runner = strategy.runner(task, seat)
    assert isinstance(runner, GradientRunner)
    try:
        for step in range(steps):
            asked = ask(seat, step) if ask is not None else None
            if asked is not None:
                runner.reads(asked)
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        runner.finish()
        runner.drain()
        return flat(task.model)
    finally:
        runner.close()


def train(
    strategy: ServerStrategy, make: Make, workers: int, servers: int, steps: int,
    ask: Ask | None = None,
) -> tuple[Tensor, list[Row], Town]:  # fmt: skip
    torch.set_num_threads(1)
    with Town(workers, servers) as town:
        answers = town.call(member, strategy, make, steps, ask)
    rows = [row for n in range(servers) for row in answers[f"server {n}"]]
    for n in range(workers):
        assert torch.equal(answers[f"worker {n}"], answers["worker 0"]), "all end with the same"
    return answers["worker 0"], rows, town


def momentum() -> Task:
    return regression(optimizer=lambda p: torch.optim.SGD(p, 0.02, momentum=0.9))


def adam() -> Task:
    return regression(optimizer=lambda p: torch.optim.Adam(p, 0.01))


def plain() -> Task:
    return regression()


# -- the filter alone ---------------------------------------------------------------------------


def gradient(step: int, layout: Layout) -> list[Tensor]:
    dice = torch.Generator().manual_seed(step)
    return [torch.randn(p.shape, generator=dice, dtype=torch.float64) for p in layout.parameters]


def ends(filter: Filter, count: int) -> tuple[Layout, Outbox, list[Decoder], Any]:
    """The worker's end and the servers', over so many ranges."""
    layout = Layout(plain().optimizer)
    stagings = [Staging(layout, each) for each in layout.cut(count)]
    parts = [each.parts for each in stagings]
    outbox = Outbox(filter, layout, parts, Counters())
    return layout, outbox, [Decoder(filter, layout, each) for each in parts], stagings


def one_vector(shares: list[list[Tensor]]) -> Tensor:
    return torch.cat([each.reshape(-1) for share in shares for each in share])


@pytest.mark.parametrize("filter", LOSSY, ids=words)
@pytest.mark.parametrize("ranges", [1, 5])
def test_what_was_sent_and_the_residual_are_all_gradients(filter: Filter, ranges: int) -> None:
    """1.6, per rank; in means where shares are uneven. Momentum adds what it adds."""
    layout, outbox, decoders, stagings = ends(filter, ranges)
    given = torch.zeros(layout.size, dtype=torch.float64)
    sent, u = torch.zeros_like(given), torch.zeros_like(given)
    for step in range(30):
        count = float((3, 4, 1)[step % 3])
        shares = [[e.clone() for e in s.gather(gradient(step, layout))] for s in stagings]
        mean = one_vector(shares) / count
        coded, scale = outbox.code(shares, count)
        outbox.commit()
        if scale is None:
            given, sent = given + mean, sent + mean
            continue
        near = one_vector([d(c, scale) for d, c in zip(decoders, coded, strict=True)]) / count
        if isinstance(filter, TopK) and filter.momentum:
            norm = float(mean.norm())
            u = u * filter.momentum + mean * min(1.0, (filter.clip or norm) / norm)
            mean = u.clone()
            u[near != 0] = 0.0
        given, sent = given + mean, sent + near
    kept = outbox.state()
    residual = torch.cat([each.reshape(-1) for each in kept["kept"]["residual"]]) / kept["unit"]
    assert float((sent + residual - given).abs().max()) < 2e-13
    assert float(residual.abs().max()) > 1e-3, "and it is not nothing"


def columns(layout: Layout, ranges: int) -> Counter[tuple[int, int, int]]:
    """(range, parameter, column of it): how many of its numbers are in that range. By counting."""
    found: Counter[tuple[int, int, int]] = Counter()
    for cut in layout.cut(ranges):
        for at in range(cut.start, cut.stop):
            number = max(n for n, start in enumerate(layout.starts) if start <= at)
            shape = layout.parameters[number].shape
            length = math.prod(shape[1:]) if len(shape) > 1 else math.prod(shape)
            found[cut.index, number, (at - layout.starts[number]) // length] += 1
    return found


@pytest.mark.parametrize("ranges", [1, 3, 7])
def test_a_column_that_a_range_cuts_is_two_and_nothing_is_left_out(ranges: int) -> None:
    layout = Layout(plain().optimizer)
    found = [
        length
        for cut in layout.cut(ranges)
        for part in layout.parts(cut)
        for number, length in shapes_of(OneBit(), layout, part)
        for _ in range(number)
    ]
    assert found == list(columns(layout, ranges).values())
    assert shapes_of(FP16(), layout, layout.parts(layout.cut(1)[0])[0]) == [(1, layout.size)]


def test_a_push_that_failed_leaves_the_residual_as_it_was() -> None:
    layout, outbox, _, stagings = ends(OneBit(), 2)
    shares = [s.gather(gradient(0, layout)) for s in stagings]
    outbox.code(shares, 3.0)
    outbox.commit()
    before = outbox.state()
    outbox.code([s.gather(gradient(1, layout)) for s in stagings], 5.0)
    after = outbox.state()
    assert after["unit"] == before["unit"] and after["pushes"] == 1
    for a, b in zip(before["kept"]["residual"], after["kept"]["residual"], strict=True):
        assert torch.equal(a, b)


# -- on real sockets ----------------------------------------------------------------------------

KINDS: list[tuple[type[GradientStrategy], Make, int, int, dict[str, Any]]] = [
    (Async, plain, 3, 1, {}), (ScaledAsync, plain, 2, 2, {}), (SoftSync, adam, 3, 1, {"s": 2}),
    (StaleSynchronous, plain, 3, 2, {"staleness": 2}), (BackupWorkers, plain, 3, 1, {}),
    (Async, plain, 2, 1, {"push_every": 2, "fetch_every": 2}), (Async, plain, 2, 3, {"copies": 2}),
    (Async, plain, 2, 2, {"push_every": 2}),
]  # fmt: skip
REPLAYED = [
    pytest.param(kind, filter, id=f"{kind[0].__name__}-{n}-{filter.words()}")
    for n, kind in enumerate(KINDS)
    for m, filter in enumerate(FILTERS)
    if isinstance(filter, OneBit) or (n + m) % 4 == 0
]


@pytest.mark.parametrize(("kind", "filter"), REPLAYED)
def test_a_log_replays_to_the_same_bits_through_every_filter(kind: Any, filter: Filter) -> None:
    """1.3 (1) with 1.6: with delays as they come."""
    which, make, workers, servers, options = kind
    strategy = which(trace=True, compress=filter, **options)
    found, rows, _ = train(strategy, make, workers, servers, 8)
    assert torch.equal(replay(make, strategy, workers, servers, rows), found)
    if filter.has_feedback and not isinstance(filter, Identity):
        bare = which(trace=True, **options)
        assert not torch.equal(replay(make, bare, workers, servers, rows), found)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.floats(0, 0.004), min_size=6, max_size=24),
    st.sampled_from([OneBit(), TopK(ratio=0.2), Rounded()]),
    st.sampled_from(["ps:async", "ps:ssp", "ps:softsync"]),
)
def test_a_log_replays_whatever_the_delays(delays: list[float], filter: Filter, name: str) -> None:
    pause = threading.Event()

    def wait(seat: Seat, step: int) -> None:
        pause.wait(delays[(7 * seat.rank + step) % len(delays)])

    strategy = chosen(name, trace=True, compress=filter)
    found, rows, _ = train(strategy, plain, 3, 2, 5, wait)
    assert torch.equal(replay(plain, strategy, 3, 2, rows), found)


def chosen(name: str, **options: Any) -> ServerStrategy:
    found = choose(name, options)
    assert isinstance(found, ServerStrategy)
    return found


@pytest.mark.parametrize("make", [momentum, adam])
@pytest.mark.parametrize("servers", [1, 3])
def test_a_filter_that_loses_nothing_is_no_filter_to_the_bit(make: Make, servers: int) -> None:
    """With counts that are no power of two."""
    whole = train(SoftSync(), make, 2, servers, 9)[0]
    assert torch.equal(train(SoftSync(compress=Identity()), make, 2, servers, 9)[0], whole)


@pytest.mark.parametrize("filter", [OneBit(), TopK(ratio=0.1), FP16(), Rounded()], ids=words)
def test_the_wire_carries_what_the_formula_says(filter: Filter) -> None:
    """1.6: ceil(n/8) + 8 for each column of n, cut columns twice; 12 for each that is sent; 2."""
    strategy = Async(compress=filter, ranges=5)
    _, _, town = train(strategy, plain, 2, 2, 6)
    layout = Layout(plain().optimizer)
    a_push = 0
    if isinstance(filter, OneBit):
        a_push = sum(math.ceil(n / 8) + 8 for n in columns(layout, 5).values())
    for cut in layout.cut(5) if not isinstance(filter, OneBit) else ():
        for part in layout.parts(cut):
            number = part.stop - part.start
            if isinstance(filter, TopK):
                a_push += 12 * math.ceil(0.1 * number)
            else:
                a_push += 2 * number if isinstance(filter, FP16) else number + 8
    for n in range(2):
        assert town.seats[f"worker {n}"].counters.sent_bytes["gradient"] == 6 * a_push
    received = sum(town.seats[f"server {n}"].counters.received_bytes["gradient"] for n in range(2))
    assert received == 2 * 6 * a_push
    assert a_push < 8 * layout.size / 2


def test_a_second_copy_is_told_the_coded_form_and_comes_to_the_same_bits() -> None:
    """1.18: any owner's state is its copy's, and neither link carries a whole gradient."""
    torch.set_num_threads(1)
    strategy = SoftSync(compress=OneBit(), copies=2, ranges=5)
    kept: dict[str, dict[int, tuple[bool, list[Tensor], str]]] = {}

    def look(seat: Seat) -> Any:
        if seat.role == "worker":
            return member(seat, strategy, momentum, 10)
        with strategy.serving(momentum(), seat) as serving:
            assert isinstance(serving, ParameterServing)
            serving.run()
            kept[seat.name] = {
                index: (held.is_owner, held.shard.state()[1], held.shard.history)
                for index, held in serving.copies.held.items()
            }

    with Town(2, 3) as town:
        town.call(look)
        sent = sum(town.seats[f"server {n}"].counters.sent_bytes["gradient"] for n in range(3))
        worker = town.seats["worker 0"].counters.sent_bytes["gradient"]
    assert sent == 2 * worker, "each push once more, as it came"
    both = 0
    for index in range(5):
        held = [each[index] for each in kept.values() if index in each]
        owners = [each for each in held if each[0]]
        copies = [each for each in held if not each[0]]
        for copy in copies if owners else []:
            both += 1
            assert copy[2] == owners[0][2]
            for a, b in zip(owners[0][1], copy[1], strict=True):
                assert torch.equal(a, b)
    assert both, "there were copies"


# -- loss, saving, what is not a number ---------------------------------------------------------


def saving(seat: Seat, strategy: GradientStrategy, make: Make, state: Any, steps: range) -> Any:
    task = make()
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            serving.run()
        return None
    runner = strategy.runner(task, seat)
    assert isinstance(runner, GradientRunner)
    try:
        if state is not None:
            runner.load_shared_state(state["shared"])
            runner.load_local_state(state["local"][seat.rank])
        for step in steps:
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        seat.meeting.gather(
            "saved", b"", [f"worker {n}" for n in range(seat.workers)], operation="saving",
            deadline_seconds=20,
        )  # fmt: skip
        shared, local = runner.shared_state(), runner.local_state()
        runner.finish()
        runner.drain()
        return flat(task.model), shared, local
    finally:
        runner.close()


@pytest.mark.parametrize(
    ("filter", "push_every"),
    [*((each, 1) for each in FILTERS), (OneBit(), 2), (Identity(), 2)],
    ids=words,
)
def test_saving_and_loading_in_mid_run_changes_no_bit(
    filter: Filter, push_every: int, tmp_path: Path
) -> None:
    """Also in the middle of what makes one push: what was not pushed is not saved, and done
    again."""
    torch.set_num_threads(1)
    strategy = SoftSync(compress=filter, push_every=push_every)
    pushed = 3 - 3 % push_every
    with Town(2, 2) as town:
        whole = town.call(saving, strategy, plain, None, range(8))["worker 0"][0]
    with Town(2, 2) as town:
        first = town.call(saving, strategy, plain, None, range(3))
    torch.save([first[f"worker {n}"][2] for n in range(2)], tmp_path / "local.pt")
    state = {
        "shared": first["worker 0"][1],
        "local": torch.load(tmp_path / "local.pt", weights_only=True),
    }
    with Town(2, 2) as town:
        resumed = town.call(saving, strategy, plain, state, range(pushed, 8))["worker 0"][0]
    assert torch.equal(resumed, whole)
    if filter.has_feedback and not isinstance(filter, Identity):
        state["local"] = [{}, {}]
        with Town(2, 2) as town:
            without = town.call(saving, strategy, plain, state, range(3, 8))["worker 0"][0]
        assert not torch.equal(without, whole), "the residuals matter"


def test_residuals_go_on_over_another_number_of_servers() -> None:
    """Where columns are cut is another then; what has not been sent is the same."""
    layout, outbox, _, stagings = ends(OneBit(), 2)
    outbox.code([s.gather(gradient(0, layout)) for s in stagings], 3.0)
    outbox.commit()
    _, other, _, _ = ends(OneBit(), 7)
    other.load(outbox.state())
    for a, b in zip(
        outbox.state()["kept"]["residual"], other.state()["kept"]["residual"], strict=True
    ):
        assert torch.equal(a, b)


def test_a_gradient_that_is_not_a_number_is_seen_and_does_not_poison_the_residual() -> None:
    def poisoned(seat: Seat) -> Any:
        task = plain()
        strategy = SoftSync(compress=OneBit())
        if seat.role == "server":
            with strategy.serving(task, seat) as serving:
                serving.run()
            return None
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner) and runner.outbox is not None
        try:
            for step in range(3):
                runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
            bad: list[Tensor | None] = gradient(0, runner.layout)  # type: ignore[assignment]
            if seat.rank == 1:
                assert bad[0] is not None
                bad[0].view(-1)[3] = float("nan")
            runner.pull(3)
            runner.install()
            runner.push(bad, 3.0, [3], 3, [None])
            runner.finish()
            runner.drain()
            return flat(task.model), runner.outbox.state()
        finally:
            runner.close()

    with Town(2, 1) as town:
        answers = town.call(poisoned)
        resets = [town.seats[f"worker {n}"].counters.events["residual resets"] for n in range(2)]
    assert resets == [0, 1]
    assert torch.isnan(answers["worker 0"][0]).any(), "all see it"
    for n in range(2):
        assert all(
            torch.isfinite(each).all() for each in answers[f"worker {n}"][1]["kept"]["residual"]
        )


def test_a_duplicate_push_changes_nothing() -> None:
    """The transport knows what it sends again; a worker that asks a new owner again does not."""

    def twice(seat: Seat) -> Any:
        task = plain()
        strategy = Async(compress=OneBit(), trace=True)
        if seat.role == "server":
            with strategy.serving(task, seat) as serving:
                assert isinstance(serving, ParameterServing)
                serving.run()
                return len(serving.rows()), dict(serving.copies.held[0].shard.counts)
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner)
        try:
            runner.step(task.data.batch(task.data.at(0), 0, 1))
            runner.pull(0)
            runner.install()
            before = flat(task.model)
            parts = [[torch.ones(4, dtype=torch.uint8)] for _ in runner.servers.all]
            header = {
                "worker": 0, "number": 1, "versions": runner.versions, "count": 6.0,
                "rates": [0.05], "steps": [0], "scale": 1.0,
            }  # fmt: skip
            runner.servers.ask(
                "push", header, step=0, kind="gradient", tensors=parts,
                each={"tensors": [1 for _ in parts]},
            )  # fmt: skip
            runner._have.clear()
            runner.pull(0)
            runner.install()
            assert torch.equal(flat(task.model), before)
            runner.finish()
            runner.drain()
        finally:
            runner.close()

    with Town(1, 1) as town:
        assert town.call(twice)["server 0"] == (1, {"pushed": 1, "applied": 1})


@pytest.mark.parametrize("copies", [1, 2])
def test_what_a_server_cannot_decode_is_refused_in_words_and_changes_nothing(copies: int) -> None:
    strategy = Async(compress=Broken(), copies=copies, ranges=3, trace=True)
    with Town(1, 2, deadline_seconds=30) as town:
        servers = [town.start(f"server {n}", member, strategy, plain, 3) for n in range(2)]
        worker = town.start("worker 0", member, strategy, plain, 3)
        with pytest.raises(
            InvalidInput, match="compress: identity cannot decode what was pushed: no such code"
        ):
            worker.result(60)
        for each in servers:
            assert each.result(60) == []


# -- what a pull need not bring -----------------------------------------------------------------


def test_a_range_that_has_not_changed_is_not_sent_again() -> None:
    """1.18: with one push in two steps and nobody else, every second pull brings nothing."""
    layout = Layout(plain().optimizer)
    _, _, town = train(Async(push_every=2, ranges=4), plain, 1, 1, 8)
    server = town.seats["server 0"].counters
    # at the beginning, and with each of the four pushes
    assert server.sent_bytes["parameters"] == 5 * 8 * layout.size
    # before the steps that follow no push, and at the end
    assert town.seats["worker 0"].counters.events["ranges unchanged"] == 5 * 4


def test_only_what_has_changed_is_sent() -> None:
    """Ranges have versions of their own."""

    def look(seat: Seat) -> Any:
        strategy, task = Async(ranges=4), plain()
        if seat.role == "server":
            with strategy.serving(task, seat) as serving:
                assert isinstance(serving, ParameterServing)
                serving.run()
            return None
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner)
        try:
            part = runner.servers.staging[2].parts[0]
            header = {
                "worker": 0, "number": 1, "versions": runner.versions, "count": 1.0,
                "rates": [0.05], "steps": [0], "ranges": [2],
            }  # fmt: skip
            peer = runner.servers._peer("server 0", 0)
            ones = torch.ones(part.shape, dtype=torch.float64)
            peer.call("push", header, [ones], kind="gradient", step=0, deadline_seconds=60)
            before, came = flat(task.model), seat.counters.received_bytes["parameters"]
            runner.pull(0)
            runner.install()
            came = seat.counters.received_bytes["parameters"] - came
            moved = (before - flat(task.model)).nonzero().reshape(-1).tolist()
            runner.number = 1
            runner.finish()
            runner.drain()
            return came, moved, (part.start, part.stop)
        finally:
            runner.close()

    with Town(1, 1) as town:
        came, moved, (start, stop) = town.call(look)["worker 0"]
    assert came == 8 * (stop - start)
    assert moved == list(range(start, stop))


def test_what_was_pulled_and_not_used_outlives_a_push() -> None:
    """A push does not use the memory that a pull came into: its answer comes there."""
    torch.set_num_threads(1)
    pushed, pulled = threading.Event(), threading.Event()
    strategy = SoftSync(s=2, distinct=False)

    def look(seat: Seat) -> Any:
        task = plain()
        if seat.role == "server":
            with strategy.serving(task, seat) as serving:
                serving.run()
            return None
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner)
        found = None
        try:
            if seat.rank == 1:  # its two pushes are one step of the servers
                for step in range(2):
                    runner.step(task.data.batch(task.data.at(step), 1, 2))
                runner.pull(2)
                runner.install()
                found = flat(task.model)
                pushed.set()
                assert pulled.wait(60)
            else:
                assert pushed.wait(60)
                runner.pull(0)
                runner.push(list(gradient(0, runner.layout)), 3.0, [0], 0, [None])
                runner.pull(1)
                runner.install()
                found = flat(task.model)
                pulled.set()
            runner.finish()
            runner.drain()
            return found
        finally:
            runner.close()

    with Town(2, 1) as town:
        answers = town.call(look)
    assert torch.equal(answers["worker 0"], answers["worker 1"])


def test_a_version_of_another_history_is_not_taken_for_the_same(tmp_path: Path) -> None:
    """A checkpoint that is loaded has the version that was there, and other parameters."""
    torch.set_num_threads(1)

    def look(seat: Seat) -> Any:
        strategy, task = Async(), plain()
        if seat.role == "server":
            with strategy.serving(task, seat) as serving:
                serving.run()
            return None
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner)
        try:
            runner.step(task.data.batch(task.data.at(0), 0, 1))
            runner.pull(0)
            runner.install()
            have = {index: list(told) for index, told in runner._have.items()}
            other = network(seed=5)
            state = runner.shared_state()
            assert state is not None
            runner.load_shared_state({**state, "model": other.state_dict()})
            runner._have.update(have)  # of one that was not told of the load
            with torch.no_grad():
                for each in runner.layout.parameters:
                    each.zero_()
            runner.pull(0)
            runner.install()
            assert torch.equal(flat(task.model), flat(other))
            runner.finish()
            runner.drain()
        finally:
            runner.close()

    with Town(1, 1) as town:
        town.call(look)


def test_a_snapshot_begins_another_history_at_a_version_that_was_there(tmp_path: Path) -> None:
    strategy = Async(snapshots=str(tmp_path), snapshot_every=1)

    def look(seat: Seat) -> Any:
        if seat.role == "worker":
            return member(seat, strategy, plain, 3)
        with strategy.serving(plain(), seat) as serving:
            assert isinstance(serving, ParameterServing)
            serving.run()
            before = serving.copies.held[0].shard
        with strategy.serving(plain(), seat) as again:
            assert isinstance(again, ParameterServing)
            again._restore()
            after = again.copies.held[0].shard
        return before.version == after.version, before.history == after.history

    with Town(1, 1) as town:
        assert town.call(look)["server 0"] == (True, False)


# -- what a single pull asks for ----------------------------------------------------------------


def test_words_for_what_a_pull_asks_for() -> None:
    assert [delay_of(each) for each in ("sequential", "eventual", 0, 7)] == [0, EVER, 0, 7]
    for wrong in ("strict", -1, True, 1.5, None):
        with pytest.raises(InvalidInput, match="consistency: 'sequential', 'eventual', or"):
            delay_of(wrong)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(1, 5), st.sampled_from([Policy, Scaled, Ssp]))
def test_each_read_keeps_its_own_promise_and_somebody_can_always_go_on(
    data: st.DataObject, workers: int, kind: Any
) -> None:
    """1.18, at read events over random turns, deaths and joins: a worker at clock c that asked
    for delay s reads all updates of clocks up to c-s-1 (nobody at work has them before it, and
    what is pushed is applied at once); the slowest is never stopped."""
    policy = kind(s=2) if kind is Ssp else kind()
    policy.clocks = dict.fromkeys(range(workers), 0)
    wants: dict[int, int | None] = {}
    reading: dict[int, int] = {}
    dead: set[int] = set()
    version = 0
    for _ in range(60):
        for each in policy.at_work:
            if each not in wants:
                wants[each] = data.draw(st.sampled_from([None, 0, 1, 3, EVER]))
        able = [("push", w) for w in sorted(reading)]
        able += [
            ("read", w) for w in policy.at_work
            if w not in reading and policy.may_pull(w, wants[w])
        ]  # fmt: skip
        assert able or not policy.at_work, "nobody can go on"
        if len(policy.at_work) > 1:
            able += [("lose", policy.at_work[0])]
        able += [("join", w) for w in sorted(dead)]
        if not able:
            break
        what, worker = data.draw(st.sampled_from(able))
        if what == "read":
            clock, delay = policy.clocks[worker], wants.pop(worker)
            bound = delay if delay is not None else (2 if kind is Ssp else EVER)
            for other in policy.at_work:
                assert policy.clocks[other] >= clock - bound
            reading[worker] = version
        elif what == "push":
            version += 1
            decisions = policy.push(Push(worker, version, reading.pop(worker)), version)
            assert len(decisions) == 1, "applied at once"
        elif what == "lose":
            dead.add(worker)
            reading.pop(worker, None)
            wants.pop(worker, None)
            policy.loses(worker, version)
        else:
            dead.discard(worker)
            policy.joins(worker)


ASKED = ["sequential", "eventual", 1, 3]


@pytest.mark.parametrize(
    "strategy",
    [Async(trace=True), ScaledAsync(trace=True), StaleSynchronous(trace=True, staleness=2)],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("servers", [1, 2])
def test_each_step_reads_what_it_asked_for(strategy: ServerStrategy, servers: int) -> None:
    """1.18, from the log of a real run with one slow worker."""
    steps, gate = 16, threading.Event()

    def ask(seat: Seat, step: int) -> Any:
        if seat.rank == 1:
            gate.wait(0.004)
        return ASKED[(step + seat.rank) % 4]

    found, rows, _ = train(strategy, plain, 3, servers, steps, ask)
    assert torch.equal(replay(plain, strategy, 3, servers, rows), found)
    for row in rows:
        clock = row.number - 1
        delay = delay_of(ASKED[(clock + row.worker) % 4])  # type: ignore[arg-type]
        seen = [r for r in rows if r.range == row.range and r.version < row.read]
        for other in range(3):
            assert sum(r.worker == other for r in seen) >= min(clock - delay, steps)


def test_a_sequential_step_waits_where_all_others_do_not() -> None:
    """ps:async, worker 1 has not moved: three steps of worker 0 are free, the fourth is not."""
    free, done, too_early = threading.Event(), threading.Event(), []

    def ask(seat: Seat, step: int) -> Any:
        if seat.rank == 1:
            assert free.wait(60)
            too_early.append(done.is_set())
        elif step == 3:
            free.set()
            return "sequential"
        elif step == 4:
            done.set()
        return None

    train(Async(), plain, 2, 1, 6, ask)
    assert too_early[:3] == [False, False, False], "before it has pushed thrice"


def test_an_eventual_step_goes_on_where_all_others_wait() -> None:
    """ps:ssp, worker 1 has not moved: by the rule worker 0 would wait before its third step."""
    far = threading.Event()

    def ask(seat: Seat, step: int) -> Any:
        if seat.rank == 1:
            assert far.wait(60)
        elif step == 4:
            far.set()
        elif step >= 2:
            return "eventual"
        return None

    train(StaleSynchronous(staleness=1), plain, 2, 1, 6, ask)


def test_where_a_step_cannot_choose_it_is_told_so() -> None:
    def ask(seat: Seat, step: int) -> Any:
        return "eventual"

    for strategy in (SoftSync(), StaleSynchronous(staleness=0), BackupWorkers()):
        with Town(2, 1, deadline_seconds=30) as town:
            workers = [town.start(f"worker {n}", member, strategy, plain, 1, ask) for n in (0, 1)]
            server = town.start("server 0", member, strategy, plain, 1)
            for each in workers:
                with pytest.raises(InvalidInput, match="collects gradients before it applies"):
                    each.result(60)
            server.result(60)
    trainer = wt.Trainer(plain(), "allreduce")
    with pytest.raises(InvalidInput, match="reads from no server"):
        for batch in trainer.batches():
            trainer.step(batch, consistency=1)
    trainer.abandon()


def test_what_has_no_form_for_a_push_is_refused_and_what_adds_momentum_twice() -> None:
    with pytest.raises(InvalidInput, match="a push comes alone"):
        Async(compress=PowerSGD()).check(plain(), 2, 1)
    with pytest.raises(InvalidInput, match="momentum twice"):
        Async(compress=TopK(momentum=0.9)).check(momentum(), 2, 1)
    with pytest.raises(InvalidInput, match="easgd:async has no such option"):
        chosen("easgd:async", compress=OneBit())
    assert StaleSynchronous(staleness=0, compress=Rounded()).check(plain(), 2, 1) == []


# -- the whole of it ----------------------------------------------------------------------------


def small() -> Task:
    return regression(48, 12)


@torch.no_grad()
def _loss_of_all(task: Task) -> float:
    total, count = task.loss_of(task.data.dataset.tensors)  # type: ignore[attr-defined]
    return float(total) / count


@pytest.mark.parametrize("filter", [wt.OneBit(warmup=3), Rounded(steps=100)], ids=words)
def test_fit_trains_through_a_filter_and_its_report_says_which(filter: Filter) -> None:
    run = wt.fit(
        small, strategy="ps:async", compress=filter, workers=2, servers=1, steps=40,
        progress=False,
    )  # fmt: skip
    task = small()
    before = _loss_of_all(task)
    task.model.load_state_dict(run.state)
    assert _loss_of_all(task) < 0.6 * before  # 0.52 in whatever order the pushes come
    assert f"ps:async (compress={filter.words()}) on 2 workers, 1 server" in run.report()
    whole = 8 * sum(each.numel() for each in small().model.parameters())
    assert run.result.sent_bytes["gradient"] < 80 * whole / 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("filter", [OneBit(), TopK(ratio=0.2), FP16()], ids=words)
def test_a_worker_on_a_gpu_ends_where_one_on_the_cpu_ends(filter: Filter) -> None:
    def make(device: str) -> Task:
        model = network().to(device)
        data = wt.Data(tuple(each.to(device) for each in samples(22)), 6, shuffle=False)
        task = regression(model=model)
        return Task(model, task.loss, torch.optim.SGD(model.parameters(), 0.05), data)

    strategy = SoftSync(compress=filter)
    there = train(strategy, lambda: make("cuda"), 2, 2, 8)[0]
    here = train(strategy, lambda: make("cpu"), 2, 2, 8)[0]
    assert torch.allclose(there, here, rtol=1e-9, atol=1e-12)
