"""`windlass import`: the job file to stdout, the report to stderr, and errors that help."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from standin import Call

from windlass.cli import jobfile

SAMPLES = Path(__file__).parents[1] / "client" / "importer_samples"


def sample(name: str) -> str:
    return str(SAMPLES / name)


def test_the_job_file_goes_to_stdout_and_the_report_to_stderr(cli: Call) -> None:
    done = cli("import", sample("tfjob.yaml"))
    assert done.code == 0
    assert done.out == (SAMPLES / "golden" / "tfjob.yaml.golden").read_text()
    assert done.err.startswith("TFJob digits-ps\n  mapped\n")
    assert "spec.runPolicy.activeDeadlineSeconds: 21600 → limits.time" in done.err
    assert "  left out\n" in done.err
    assert "spec.runPolicy.cleanPodPolicy: None · a finished gang leaves no process" in done.err
    assert "  to do by hand\n" in done.err


def test_quiet_leaves_only_the_job_file(cli: Call) -> None:
    done = cli("import", "-q", sample("srun_python.sbatch"))
    assert (done.code, done.err) == (0, "")
    assert "gpus: 4" in done.out


def test_the_job_file_is_one_that_apply_takes(cli: Call, home: Path) -> None:
    done = cli("import", sample("several.yaml"), "-O", "job.yaml")
    assert (done.code, done.out) == (0, "")
    assert "wrote job.yaml · next: windlass apply -f job.yaml --dry-run" in done.err
    found = jobfile.read("job.yaml")
    assert [each["framework"] for each in found] == ["xgboost", "paddle"]
    for each in found:
        jobfile.check(each)


def test_a_file_that_is_there_is_not_written_over(cli: Call, home: Path) -> None:
    Path("job.yaml").write_text("mine")
    done = cli("import", sample("trainjob.yaml"), "-O", "job.yaml")
    assert done.code == 1
    assert "job.yaml is there already" in done.err
    assert Path("job.yaml").read_text() == "mine"
    assert cli("import", sample("trainjob.yaml"), "-O", "job.yaml", "--force").code == 0
    assert "torchrun bert.py" in Path("job.yaml").read_text()


def test_json_has_the_job_and_the_report(cli: Call) -> None:
    done = cli("import", "-o", "json", sample("determined.yaml"))
    answer = json.loads(done.out)
    assert (done.code, done.err, answer["api"]) == (0, "", 1)
    (job,) = answer["jobs"]
    assert job["kind"] == "experiment"
    assert job["spec"]["params"] == {"lr": 0.001, "global_batch_size": 64}
    assert {
        "fate": "dropped",
        "field": "searcher.name",
        "value": "single",
        "what": "one trial is one job",
    } in job["notes"]


def test_stdin_is_read_too(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("#SBATCH -N 2\nsrun python train.py\n"))
    done = cli("import", "-")
    assert done.code == 0
    assert "run: python train.py" in done.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"kind: Pod", "x.yaml: kind Pod: not known here\n  hint: known: TFJob, PyTorchJob"),
        (b"", "x.yaml is empty"),
        (b"a: [", "x.yaml: line 1"),
        (b"\xff\xfe", "FILE: x.yaml cannot be read"),
        (b"#SBATCH --nodes=x\nsrun y", "x.yaml: line 1 --nodes: a whole number from 1 on"),
        (b"entrypoint: x\n---\nkind: job", "x.yaml: document 2: a job of windlass already"),
        (b"kind: [1]", "x.yaml: kind [1]: not known here"),
    ],
)
def test_what_cannot_be_converted_is_said_in_a_line(
    cli: Call, home: Path, content: bytes, words: str
) -> None:
    Path("x.yaml").write_bytes(content)
    done = cli("import", "x.yaml")
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_missing_file_is_said(cli: Call) -> None:
    done = cli("import", "nowhere.yaml")
    assert done.code == 2
    assert "FILE: nowhere.yaml cannot be read: No such file or directory" in done.err


def test_an_error_is_json_when_json_was_asked_for(cli: Call) -> None:
    done = cli("import", "nowhere.yaml", "-o", "json")
    assert json.loads(done.out)["error"]["code"] == "invalid-input"
