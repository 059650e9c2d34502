"""Studies on a real server: trials that really run, pause, resume, crash, and are somebody's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.testing import invariants
from windlass.testing.people import People
from windlass.testing.platform import Platform, wait_for

QUADRATIC = """
import argparse, windlass
flags = argparse.ArgumentParser()
flags.add_argument("--x", type=float)
flags.add_argument("--layers", type=int)
given = flags.parse_args()
assert windlass.context().params == {"x": given.x, "layers": given.layers}
if given.layers == 3:
    raise SystemExit(3)
windlass.log(step=1, loss=(given.x - 0.5) ** 2 + given.layers, size=given.layers)
"""

RUNGS = """
import json, time, windlass
here = windlass.context(watch_stop=True)
found = windlass.resume_from()
first = json.loads((found / "state.json").read_text())["step"] if found else 0
for step in range(first + 1, 4):
    windlass.log(step=step, loss=here.params["x"])
    with windlass.checkpoint(step) as path:
        (path / "state.json").write_text(json.dumps({"step": step}))
    end = time.monotonic() + 120
    while step == 1 and not windlass.should_stop() and time.monotonic() < end:
        time.sleep(0.02)  # it waits at the rung: nothing here goes by the clock
    if windlass.should_stop():
        break
windlass.log(step=3, began=first, loss=here.params["x"])
"""

MEMBERS = """
import json, os, time, windlass
here = windlass.context(watch_stop=True)
found = windlass.resume_from()
first = json.loads((found / "state.json").read_text())["step"] if found else 0
for step in range(first + 1, 5):
    windlass.log(step=step, loss=here.params["x"], began=first)
    with windlass.checkpoint(step) as path:
        (path / "state.json").write_text(json.dumps({"step": step}))
    end = time.monotonic() + 120
    while step == 2 and not first and here.params["x"] > 0.5 and not windlass.should_stop():
        assert time.monotonic() < end
        time.sleep(0.02)  # the worse one waits until it is replaced
    if windlass.should_stop():
        break
    while step == 3 and not first and time.monotonic() < end:
        if windlass.should_stop() or os.path.exists(os.environ["GATE"]):
            break
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("studies") / "home") as platform:
        yield platform
        invariants.check(platform)


def code(folder: Path, text: str) -> Path:
    (folder / "train.py").write_text(text)
    return folder


def spec(**fields: Any) -> dict[str, Any]:
    return {
        "job": {"run": "python train.py", "environment": {"python": sys.executable}},
        "minimize": "loss", "sampler": "random", **fields,
    }  # fmt: skip


def test_a_study_ends_with_every_result_the_crashed_ones_too(shared, tmp_path) -> None:
    study = shared.client.studies.create(
        spec(name="grid", sampler="grid", trials=50, parallel=4,
             space={"x": [0.5, 0.75], "layers": "int:1..3"},
             constraints=[{"metric": "size", "least": 2}]),
        code=code(tmp_path, QUADRATIC),
    )  # fmt: skip
    study = shared.client.studies.wait(study.name, timeout_seconds=120)
    assert study.state == "finished" and study.counts == {"succeeded": 4, "failed": 2}
    trials = shared.client.studies.trials("grid")
    assert [trial["number"] for trial in trials] == list(range(6))
    assert {trial["state"] for trial in trials if trial["params"]["layers"] == 3} == {"failed"}
    [best] = shared.client.studies.best("grid")
    assert best["params"] == {"x": 0.5, "layers": 2} and best["values"] == [2.0]
    job = shared.client.jobs.get(best["job"])
    assert job.name == f"grid-{best['number']}" and job.state == "succeeded"
    shown = shared.cli("study", "show", "grid")
    assert shown.returncode == 0 and "best: trial" in shown.stdout
    assert "Parallel coordinates" in shown.stdout and "it exited with 3" in shown.stdout
    assert shared.cli("study", "best", "-q", "grid").stdout.strip() == best["job"]


def test_a_paused_trial_frees_its_place_and_resumes_from_its_checkpoint(shared, tmp_path) -> None:
    study = shared.client.studies.create(
        spec(name="rungs", sampler="grid", space={"x": [1.0, 2.0, 3.0]}, give="environment",
             trials=3, parallel=1, pruner={"kind": "asha", "max_step": 3}),
        code=code(tmp_path, RUNGS),
    )  # fmt: skip
    study = shared.client.studies.wait(study.name, timeout_seconds=180)
    trials = shared.client.studies.trials("rungs")
    assert [trial["state"] for trial in trials] == ["succeeded", "pruned", "pruned"], trials
    job = shared.client.jobs.get(trials[0]["job"])
    assert job.data["attempt"] == 2
    [began] = shared.client.jobs.metrics(job.id, key="began")
    assert began["points"][-1][2] == 1, "it went on after the step at which it had paused"
    events = [event["state"] for event in shared.client.jobs.events(job.id)]
    assert "held" in events, "while it paused, it held nothing"


def test_the_worse_member_of_a_population_goes_on_from_the_better_ones_checkpoint(
    shared, tmp_path
) -> None:
    gate = shared.gate("members")
    job = {"run": "python train.py",
           "environment": {"python": sys.executable, "vars": {"GATE": str(gate)}}}  # fmt: skip
    study = shared.client.studies.create(
        spec(name="members", job=job, space={"x": "float:0..1"}, give="environment", seed=4,
             trials=3, parallel=2, pruner={"kind": "pbt", "interval": 2, "resample": 0.0}),
        code=code(tmp_path, MEMBERS),
    )  # fmt: skip

    def replaced() -> list[dict[str, Any]] | None:
        trials = shared.client.studies.trials(study.name)
        return trials if len(trials) == 3 else None

    first, second, third = wait_for(replaced, 120, "one is replaced")
    better, worse = sorted((first, second), key=lambda trial: trial["params"]["x"])
    assert better["params"]["x"] < 0.5 < worse["params"]["x"], "so the seed was chosen"
    assert third["parent"] == better["number"]
    gate.touch()
    done = shared.client.studies.wait(study.name, timeout_seconds=120)
    assert done.counts == {"succeeded": 2, "pruned": 1}
    [began] = shared.client.jobs.metrics(third["job"], key="began")
    assert began["points"][0][2] >= 2, "from the other's step, not from nothing"


def test_a_study_can_be_stopped_given_more_and_removed(shared, tmp_path) -> None:
    studies = shared.client.studies
    gate = shared.gate("never")
    command = shared.witness_command("until", gate)
    made = studies.create(
        {"name": "stopped", "job": {"run": command, "limits": {"grace": "1s"}}, "trials": 9,
         "parallel": 2, "space": {"x": [1, 2]}, "minimize": "loss", "give": "environment",
         "sampler": "random"}
    )  # fmt: skip
    wait_for(lambda: len(studies.trials("stopped")) == 2, 60, "two trials")
    for trial in studies.trials("stopped"):
        shared.wait_state(trial["job"], "running", seconds=60)
    with pytest.raises(Conflict):
        studies.create(spec(name="stopped", space={"x": [1]}))
    assert studies.stop("stopped").data["wish"] == "stop"
    study = studies.wait("stopped", timeout_seconds=120)
    assert (study.state, study.counts) == ("stopped", {"cancelled": 2})
    assert studies.add_trials("stopped", 1).trials == 10
    wait_for(lambda: len(studies.trials("stopped")) == 4, 60, "it goes on")
    jobs = [trial["job"] for trial in studies.trials("stopped")]
    studies.delete(made.id)
    wait_for(lambda: all(study.name != "stopped" for study in studies.list()), 120, "it is gone")
    assert {shared.client.jobs.get(job).state for job in jobs} == {"cancelled"}


def test_bad_studies_are_refused_by_name(shared) -> None:
    studies = shared.client.studies
    for fields, words in (
        ({"space": {"x": "log:0..1"}}, "space.x"),
        ({"space": {"x": [1]}, "job": {"run": "x", "framework": "nothing"}}, "framework"),
        ({"space": {"x": [1]}, "job": {"run": "x", "queue": {"name": "none"}}}, "queue"),
        ({"space": {"x": [1]}, "job": {"run": "x", "code": {"bundle": "0" * 64}}}, "bundle"),
        ({"space": {"x": "int:1..1000000"}, "sampler": "grid"}, "grid"),
    ):
        with pytest.raises((InvalidInput, Conflict), match=words):
            studies.create({**spec(), **fields})
    with pytest.raises(NotFound):
        studies.get("nothing")


def test_another_projects_user_sees_no_study_and_a_colleague_changes_none(shared) -> None:
    people = People(shared)
    people.project("red")
    people.project("blue")
    body = {"spec": {"name": "hers", "job": {"run": "true", "hold": True}, "space": {"x": [1]},
                     "minimize": "loss", "sampler": "random", "trials": 1}}  # fmt: skip
    ann = people.user("ann", project="red", role="member")
    eve = people.user("eve", project="blue", role="member")
    cat = people.user("cat", project="red", role="member")
    dan = people.user("dan", project="red", role="viewer")
    assert ann.call("POST", "/studies", body).status_code == 201
    assert dan.call("POST", "/studies", body).status_code == 403
    changes = (("POST", "/stop", {}), ("POST", "/trials", {"trials": 1}), ("DELETE", "", None))
    for verb, path, more in (("GET", "", None), ("GET", "/trials", None), *changes):
        assert eve.call(verb, f"/studies/hers{path}", more).status_code == 404, (verb, path)
    for verb, path, more in changes:
        assert cat.call(verb, f"/studies/hers{path}", more).status_code == 403, (verb, path)
    assert cat.call("GET", "/studies/hers").status_code == 200
    assert [item["name"] for item in cat.call("GET", "/studies").json()["items"]] == ["hers"]
    assert eve.call("GET", "/studies").json()["items"] == []
    wait_for(lambda: ann.call("GET", "/studies/hers").json()["made"] == 1, 60, "its trial")
    [trial] = ann.call("GET", "/studies/hers/trials").json()["items"]
    job = ann.call("GET", f"/jobs/{trial['job']}").json()
    assert (job["user"], job["project"]) == ("ann", "red"), "a trial is its owner's job"
    assert ann.call("DELETE", "/studies/hers").status_code == 204
    gone = lambda: ann.call("GET", "/studies/hers").status_code == 404  # noqa: E731
    wait_for(gone, 60, "stopped and removed")
