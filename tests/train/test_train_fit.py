"""`fit`: here, in processes of this machine, below torchrun; refused, resumed, asked to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from alone import Alone, AloneAndAgain, AloneOnward, make

import windlass.train as wt
from windlass.core.errors import InvalidInput, MemberLost
from windlass.train import registry
from windlass.worker.ports import HeldPorts


def test_one_worker_trains_in_this_process_and_learns() -> None:
    run = wt.fit(make, Alone(), epochs=8, progress=False)
    assert run.result.steps == 40 and run.result.samples == 8 * 37
    losses = [point.loss for point in run.result.losses]
    assert losses[-1] < losses[0] / 2
    assert run.result.evaluation[-1].numbers["right"] > 0.85
    assert set(run.state) == {"weight", "bias"}
    assert "40 steps" in run.report()


def test_two_workers_are_two_processes_with_their_own_shares() -> None:
    run = wt.fit(make, Alone(), workers=2, steps=10, progress=False)
    assert [each.name for each in run.result.members] == ["worker 0", "worker 1"]
    assert run.result.samples == 2 * 37, "each sample of an epoch once over both"


def test_a_run_goes_on_from_its_checkpoint_as_if_nothing_had_been(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    whole = wt.fit(
        make, Alone(), workers=2, steps=12, checkpoint=folder, save_every=7, progress=False
    )
    assert [path.name for path in folder.iterdir()] == ["step-000000000007-000001"]
    rest = wt.fit(make, Alone(), workers=2, steps=12, checkpoint=folder, progress=False)
    assert rest.result.losses[0].step == 8
    assert torch.equal(rest.state["weight"], whole.state["weight"])
    with pytest.raises(InvalidInput, match="an earlier run's, up to step") as caught:
        wt.fit(make, Alone(), steps=12, checkpoint=folder, resume=False, progress=False)
    assert "another folder" in caught.value.hint


def test_one_worker_alone_saves_where_it_is_told_to(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    wt.fit(make, Alone(), steps=7, checkpoint=folder, save_every=7, progress=False)
    assert [path.name for path in folder.iterdir()] == ["step-000000000007-000001"]
    run = wt.fit(make, Alone(), steps=9, checkpoint=folder, progress=False)
    assert [point.step for point in run.result.losses] == [8, 9]


def test_a_list_does_for_a_tuple() -> None:
    """`--option replicas=[2,1]` of the example was refused: "should be a valid tuple"."""
    found = registry.choose("pipedream", {"replicas": [2, 1], "cuts": [3]})
    assert found == registry.choose("pipedream", {"replicas": (2, 1), "cuts": (3,)})
    hash(found)  # nothing in it can change


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ({"strategy": "alreduce"}, "there is no 'alreduce'", "allreduce"),
        ({"strategy": "allreduce", "evry": 3}, "evry", "its options"),
        ({"strategy": Alone(), "every": 3}, "every", "Alone"),
        ({"strategy": Alone(), "workers": 0}, "workers: from 1", ""),
        ({"strategy": Alone(), "servers": 1}, "servers: alone has none", ""),
        ({"strategy": Alone(), "epochs": 0}, "epochs: a whole number", ""),
        ({"strategy": Alone(), "epochs": 1, "steps": 1}, "one of them", ""),
        ({"strategy": Alone(), "device": "tpu"}, "device", ""),
    ],
)
def test_a_wrong_option_is_named_with_what_there_is(
    options: dict[str, object], said: str, hint: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        wt.fit(make, progress=False, **options)  # type: ignore[arg-type]
    assert hint in caught.value.hint


def test_a_function_that_makes_no_task_is_told_so() -> None:
    with pytest.raises(InvalidInput, match=r"make: it gives a windlass.train.Task \(found int"):
        wt.fit(lambda: 5, Alone(), progress=False)  # type: ignore[arg-type, return-value]


def test_where_the_strategy_aborts_a_death_ends_the_run_with_its_name() -> None:
    with pytest.raises(MemberLost, match="worker 1 lost .* killed by SIGKILL"):
        wt.fit(make, Alone(die_at=3), workers=2, steps=10, progress=False)


def test_where_it_shrinks_the_others_go_on_and_the_report_says_who_was_lost() -> None:
    run = wt.fit(make, AloneOnward(die_at=3), workers=2, steps=10, progress=False)
    assert run.result.lost == ("worker 1",)
    assert [each.name for each in run.result.members] == ["worker 0"]


@pytest.mark.training
def test_where_it_may_come_back_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALONE_MARKS", str(tmp_path))
    run = wt.fit(make, AloneAndAgain(die_at=3), workers=2, steps=10, progress=False)
    assert run.result.lost == ("worker 1",)
    assert [each.name for each in run.result.members] == ["worker 0", "worker 1"]


class Killed(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Worker 1's 60th sample kills it, once. Until it is back the others read slowly."""

    def __init__(self, mark: str) -> None:
        self.mark = Path(mark)
        self.back = Path(mark + ".back")
        self.read = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.read += 1
        if os.environ.get("RANK") == "1":
            if self.mark.exists():
                self.back.touch()
            elif self.read == 60:
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        elif self.read >= 60 and not self.back.exists():
            time.sleep(0.2)  # it comes back to a training that goes on
        x = torch.full((4,), float(index % 7))
        return x, x[:1]


def make_killed(mark: str) -> wt.Task:
    model = torch.nn.Linear(4, 1)
    loss = wt.sum_loss(torch.nn.functional.mse_loss, reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    return wt.Task(model, loss, optimizer, wt.Data(Killed(mark), 4))


@pytest.mark.training
@pytest.mark.parametrize("strategy", ["ps:async", "adpsgd"])
def test_a_worker_that_was_killed_comes_back_to_where_the_others_are(
    tmp_path: Path, strategy: str
) -> None:
    steps = 300
    made = partial(make_killed, str(tmp_path / "killed"))
    run = wt.fit(made, strategy, workers=2, steps=steps, progress=False)
    assert run.result.lost == ("worker 1",)
    back = {each.name: each for each in run.result.members}["worker 1"]
    assert back.steps == steps
    assert 0 < len(back.losses) < steps - 15, "it made none of the steps that were over"


SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    import windlass.train as wt
    from alone import Alone, make as made
    print("loading", __name__, flush=True)
    def make():
        return made()
    {guard}
    {pad}for steps in {steps}:
    {pad}    run = wt.fit(make, Alone(), workers=2, steps=steps, progress=False)
    {pad}    print("steps", run.result.steps)
"""


@pytest.mark.parametrize(("guarded", "steps"), [(True, [4]), (False, [4, 8])])
def test_a_script_may_fit_twice_with_or_without_a_guard(
    tmp_path: Path, guarded: bool, steps: list[int]
) -> None:
    text = textwrap.dedent(SCRIPT).format(
        tests=str(Path(__file__).parent),
        guard='if __name__ == "__main__":' if guarded else "",
        pad="    " if guarded else "",
        steps=steps,
    )
    script = tmp_path / "mine.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("steps")]
    assert said == [f"steps {count}" for count in steps]


GANG = """
    import os, sys
    sys.path.insert(0, {tests!r})
    import windlass.train as wt
    from alone import Alone, make
    run = wt.fit(make, Alone(), steps=10, progress=False)
    print("rank", os.environ["RANK"], "of", len(run.result.members), run.result.samples)
"""


@contextmanager
def gang_of(script: Path, size: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Its processes, as a launcher would start them; none of them is left behind. Their port is
    held, as a worker holds it, so that nobody else is given it before rank 0 listens there."""
    held = HeldPorts(1)
    members: list[subprocess.Popen[str]] = []
    try:
        for rank in range(size):
            env = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.numbers[0]),
            }  # fmt: skip
            members.append(
                subprocess.Popen(
                    [sys.executable, str(script)], env=env, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
        yield members
    finally:
        for each in members:
            each.kill()
            each.wait()
            if each.stdout is not None:
                each.stdout.close()
        held.close()


def test_below_a_launcher_each_process_is_a_member_of_the_gang(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(textwrap.dedent(GANG).format(tests=str(Path(__file__).parent)))
    with gang_of(script, 2) as members:
        said = [each.communicate(timeout=120)[0] for each in members]
    assert "rank 0 of 2 74" in said[0]
    assert "rank 1 of 1" in said[1]


STOP = """
    import sys
    sys.path.insert(0, {tests!r})
    import windlass
    import windlass.train as wt
    from alone import Alone, make
    from alone import _Alone
    slow = _Alone.step
    def step(self, batch):
        at, all = batch.cursor.steps, ["worker 0", "worker 1"]
        if self.seat.rank == 0 and at == 5:
            print("far enough", flush=True)
        # They are at most one step apart, as their strategy says.
        self.seat.meeting.gather(f"at {{at}}", b"", all, operation="", deadline_seconds=60)
        return slow(self, batch)
    _Alone.step = step
    windlass.context(watch_stop=True)
    run = wt.fit(make, Alone(), steps=100000, checkpoint={folder!r}, progress=False)
    print("stopped", run.stopped, "at", run.result.members[0].steps)
"""


def test_a_gang_that_is_asked_to_stop_agrees_on_the_step_and_saves(tmp_path: Path) -> None:
    script, folder = tmp_path / "mine.py", tmp_path / "kept"
    script.write_text(
        textwrap.dedent(STOP).format(tests=str(Path(__file__).parent), folder=str(folder))
    )
    with gang_of(script, 2) as members:
        assert members[0].stdout is not None
        while "far enough" not in members[0].stdout.readline():
            assert members[0].poll() is None
        members[1].send_signal(signal.SIGTERM)  # one alone: the other learns of it
        said = [each.communicate(timeout=60)[0] for each in members]
    ends = {text.strip().splitlines()[-1] for text in said}
    assert len(ends) == 1 and ends.pop().startswith("stopped True at"), said
    assert any(folder.iterdir())
