"""Job files: YAML without its traps, and errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.cli import jobfile
from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobSpec


def test_words_and_numbers_mean_what_people_think() -> None:
    (found,) = jobfile.parse(
        "run: a\nretry: {on: [lost], times: 017}\n"
        "params: {lr: 1e-3, yes: no, when: 2024-01-01, t: 1:30, ok: true, dot: .5}"
    )
    assert found["retry"] == {"on": ["lost"], "times": 17}
    assert found["params"] == {
        "lr": 0.001, "yes": "no", "when": "2024-01-01", "t": "1:30", "ok": True, "dot": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: a\nrun: b", "line 2: 'run' stands twice (first on line 1)"),
        ("roles: {w: {count: 1, count: 2}}", "'count' stands twice"),
        ("run: [", "line 1"),
        ("- a", "a job is a mapping of fields"),
        ("", "is empty"),
        ("kind: flow", "kind: 'flow' is not known; known: job"),
        ("1: x", "the key 1 is not text"),
        ("run: !!python/object/apply:os.system ['x']", "could not determine a constructor"),
    ],
)
def test_broken_files_are_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        jobfile.parse(text, "job.yaml")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: a\nworkrs: 2", "workrs: no such field; did you mean 'workers'? known: kind, name"),
        ("run: a\nroles: {w: {gpu: 1}}", "roles.w.gpu: no such field; did you mean 'gpus'?"),
        ("run: a\nworkers: two", "workers: input should be a valid integer (found 'two')"),
        ("run: a\nlimits: {time: soon}", "limits.time: a duration is like 90s"),
        ("name: x", "nothing to run"),
    ],
)
def test_wrong_fields_name_what_was_found_and_what_is_known(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        jobfile.check(jobfile.parse(text)[0], "job.yaml")
    assert words in caught.value.message
    assert caught.value.message.startswith("job.yaml: ")


def test_the_file_that_init_writes_is_a_job(home: Path) -> None:
    from windlass.cli.init import TEMPLATE

    text = TEMPLATE.format(file="job.yaml", name="x", script="train.py")
    (found,) = jobfile.parse(text)
    jobfile.check(found)
    assert JobSpec.model_validate(found).command("worker") == ("python", "train.py", "--lr", "0.1")


def test_several_jobs_may_stand_in_one_file() -> None:
    assert len(jobfile.parse("run: a\n---\nrun: b\n---\n")) == 2
