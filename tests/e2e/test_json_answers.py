"""What commands print with `-o json` is what docs/reference/json.md says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from windlass.testing.platform import Platform

sys.path.insert(0, str(Path(__file__).parents[2]))  # `docs` is part of the checkout

from docs.writers import answers

JOB = "kind: job\nname: filed\nrun: python3 -c 'print(1)'\n"
CALLS = (
    "status", "ps -a", "show filed", "logs filed", "metrics filed",
    "metrics --last filed", "events filed", "why filed",
    "wait filed", "rerun filed", "submit --name more true", "stop --now more", "compare filed",
    "checkpoint ls filed", "apply -y -f job.yaml", "rm -y more", "top", "node ls", "engine ls",
    "queue ls", "queue show", "queue pause default", "queue resume default", "quota ls",
    "limit ls", "usage report", "browser ls", "whoami", "context ls", "project ls",
    "project create other", "project show other", "project members other", "user create ann",
    "user ls", "user show ann", "user disable ann", "user enable ann", "key ls",
    "token create one --scope read", "token ls", "secret ls", "audit ls", "audit head",
    "audit show 1", "study ls", "model ls", "config get", "config path", "version", "doctor",
    "import job.sbatch", "run --name ran true", "up", "ui", "init new.yaml",
    "backup create all.tar",
)  # fmt: skip


def test_every_command_with_json_is_described() -> None:
    assert set(answers.with_json()) == set(answers.ANSWERS)
    for command in answers.ANSWERS:
        answers.schema(command)


@pytest.fixture(scope="module")
def folder(shared: Platform, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("calls")
    (made / "job.yaml").write_text(JOB)
    (made / "job.sbatch").write_text("#!/bin/bash\n#SBATCH -n 1\npython train.py\n")
    done = shared.cli("apply", "-y", "-f", "job.yaml", cwd=made)
    assert done.returncode == 0, done.stderr
    shared.wait("filed")
    return made


@pytest.mark.slow
def test_commands_print_what_their_schema_says(shared: Platform, folder: Path) -> None:
    wrong = []
    for call in CALLS:
        words = call.split()
        command = " ".join(["windlass", *words[:2]])
        named = command if command in answers.ANSWERS else f"windlass {words[0]}"
        used = 2 if named == command else 1
        done = shared.cli(*words[:used], "-o", "json", *words[used:], cwd=folder)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            wrong.append(f"{call}: {done.returncode} {done.stdout[:200]!r} {done.stderr[:300]!r}")
            continue
        if "error" in found and done.returncode:
            wrong.append(f"{call}: {found['error']}")
        wrong += [f"{call}: {fault}" for fault in answers.faults(found, answers.schema(named))]
    assert wrong == []
