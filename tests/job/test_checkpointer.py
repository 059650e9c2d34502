"""What to save said once: objects and functions, in real processes, on the platform and off it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TORCH = """
import json, sys, torch, windlass
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
seen = {"losses": [], "blob": b"x"}
kept = windlass.checkpoint(model=model, optimizer=optimizer, schedule=schedule, seen=seen)
data = torch.arange(12.0).reshape(3, 4)
for step in kept.steps(int(sys.argv[1]), every=2):
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()
    seen["losses"].append(loss.item())
print(json.dumps([kept.resumed is not None, seen["losses"], model.weight.tolist()]))
"""
FUNCTIONS = """
import windlass
state = {"n": 0}
kept = windlass.checkpoint(
    save=lambda folder: (folder / "n").write_text(str(state["n"])),
    load=lambda folder: state.update(n=int((folder / "n").read_text())),
    folder=%r,
)
print(kept.step, state["n"])
state["n"] += 5
kept.save((kept.step or 0) + 10)
"""
PLAIN = """
import numpy, random, windlass
state = {}
kept = windlass.checkpoint(state=state, folder="kept")
if kept.step is None:
    state.update(a=numpy.arange(3, dtype="int16"), b=b"\\x00\\xff", t=(1, [2.5, None]))
    state.update(n=float("inf"), random=random.getstate(), deep={3: {"x": True}})
    kept.save(1)
else:
    assert state["a"].dtype == numpy.int16 and state["a"].tolist() == [0, 1, 2]
    assert state["b"] == b"\\x00\\xff" and state["t"] == (1, [2.5, None]) and state["n"] > 1e308
    random.setstate(state["random"])
    assert state["deep"] == {3: {"x": True}}
    print("good")
"""


def told(done: Any) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


def with_argument(job: Any, code: str, argument: int, **options: Any) -> Any:
    return job.run(f"import sys; sys.argv.append('{argument}')\n" + code, **options)


def test_a_torch_training_resumes_to_the_bit_with_its_optimiser_and_schedule(
    job: Any, registry: Any
) -> None:
    job.url = registry.url
    resumed, losses, _ = told(with_argument(job, TORCH, 4))
    assert not resumed and registry.steps() == [2, 4]
    job.attempt, job.extra = 4, {"WINDLASS_RESUME_FROM": registry.taken[-1]["path"]}
    resumed, all_losses, weight = told(with_argument(job, TORCH, 8))
    assert resumed and all_losses[:4] == losses and len(all_losses) == 8
    job.attempt, job.extra = 5, {}
    fresh, whole_losses, whole_weight = told(with_argument(job, TORCH, 8))
    assert not fresh and (all_losses, weight) == (whole_losses, whole_weight)


def test_functions_save_and_load_with_no_platform_at_all(job: Any, tmp_path: Path) -> None:
    job.environment = lambda *_: {"PATH": "/usr/bin:/bin"}
    code = FUNCTIONS % str(tmp_path / "kept")
    assert [job.run(code).stdout.split() for _ in range(3)] == [
        ["None", "0"], ["10", "5"], ["20", "10"],
    ]  # fmt: skip


def test_off_the_platform_nothing_is_resumed_unless_it_was_asked_for(job: Any) -> None:
    job.environment = lambda *_: {"PATH": "/usr/bin:/bin"}
    code = (
        "import windlass\nkept = windlass.checkpoint(a={'x': 1}%s)\nprint(kept.step)\nkept.save(3)"
    )
    assert [job.run(code % "").stdout.strip() for _ in range(2)] == ["None", "None"]
    assert job.run(code % ", resume=True").stdout.strip() == "3"


def test_a_dict_of_arrays_bytes_and_numbers_comes_back_as_it_was(job: Any) -> None:
    job.environment = lambda *_: {"PATH": "/usr/bin:/bin"}
    job.run(PLAIN)
    assert job.run(PLAIN).stdout.strip() == "good"
    assert not list((job.home / "kept").glob("*/*.pt")), "torch had no part in it"


def test_a_stop_saves_and_ends_the_loop(job: Any, registry: Any) -> None:
    job.url = registry.url
    code = """
import os, signal, windlass
state = {"n": 0}
for step in windlass.checkpoint(state=state).steps(1000):
    state["n"] += 1
    if step == 6:
        os.kill(os.getpid(), signal.SIGTERM)
"""
    job.run(code)
    assert registry.steps() == [7]


def test_in_a_gang_rank_0_saves_for_all_and_parts_stay_each_ranks_own(
    job: Any, registry: Any
) -> None:
    job.url = registry.url
    code = """
import windlass
state = {{"rank": windlass.context().rank}}
kept = windlass.checkpoint(state=state, ranks={ranks!r})
print(kept.step, state["rank"])
kept.save({step})
"""

    def gang(size: int, ranks: str, step: int) -> list[tuple[str, str]]:
        started = [job.start(code.format(ranks=ranks, step=step), at, size) for at in range(size)]
        return [each.communicate(timeout=60) for each in started]

    assert [out.split() for out, _ in gang(2, "one", 1)] == [["None", "0"], ["None", "1"]]
    assert registry.steps() == [1] and "ranks" not in registry.taken[0]
    job.attempt, job.extra = 4, {"WINDLASS_RESUME_FROM": registry.taken[-1]["path"]}
    assert [out.split() for out, _ in gang(2, "all", 2)] == [["1", "0"], ["1", "0"]]
    assert registry.steps() == [1, 2] and registry.taken[1]["ranks"] == 2
    job.attempt, job.extra = 5, {"WINDLASS_RESUME_FROM": registry.taken[-1]["path"]}
    [(_, error)] = gang(1, "all", 3)
    assert "has the parts of 2 ranks, and there are 1 now" in error


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("checkpoint()", "give a step"),
        ("checkpoint(model=3)", "found int; known are"),
        ("checkpoint(save=print)", "give both, or neither"),
        ("checkpoint(3, model={})", "takes no objects"),
        ("checkpoint(a={'x': object()}).save(1)", "it holds object, which has no plain form"),
        ("checkpoint(a={}, ranks='some')", 'ranks is "one" or "all"'),
    ],
)
def test_what_cannot_be_saved_is_told_in_words(job: Any, call: str, words: str) -> None:
    done = job.run(f"import windlass\nwindlass.{call}", check=False)
    assert done.returncode == 1 and words in done.stderr
    assert not list(job.checkpoints.glob("step-*"))


def test_a_checkpoint_of_other_names_is_refused_with_words(job: Any) -> None:
    job.environment = lambda *_: {"PATH": "/usr/bin:/bin"}
    job.run("import windlass\nwindlass.checkpoint(a={}, folder='kept').save(1)")
    done = job.run("import windlass\nwindlass.checkpoint(b={}, folder='kept')", check=False)
    assert "has no b.json; it was saved with other names" in done.stderr
