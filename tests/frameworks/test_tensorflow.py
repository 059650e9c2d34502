"""TensorFlow and Keras for real: the examples, as their READMEs run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.testing.environments import Unavailable, environment
from windlass.testing.platform import Platform, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Two fake nodes: roles that never end are ended over there too."""
    with Platform(tmp_path_factory.mktemp("home") / "home", "--fake-nodes", "2") as platform:
        yield platform


def python_with(name: str, *requirements: str) -> Path:
    try:
        return environment(name, *requirements)
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def tensorflow() -> Path:
    return python_with("tensorflow", "tensorflow-cpu==2.21.0", "tf_keras==2.21.0")


@pytest.fixture(scope="module")
def keras() -> Path:
    return python_with("keras", "keras==3.15.1", "torch==2.13.0", "numpy")


def run(platform: Platform, python: Path, *words: str, folder: Path) -> tuple[Job, str]:
    """One `windlass run` of a user who has activated an environment; the job and its output."""
    env = {**platform.env, "VIRTUAL_ENV": str(python.parents[1])}
    before = {job.id for job in platform.client.jobs.list()}
    done = platform.cli("run", *words, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = [job for job in platform.client.jobs.list() if job.id not in before]
    assert job.state == "succeeded" and job.attempt == 1
    return job, done.stdout


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"epoch \d+ loss=([0-9.]+)", text)]


def notes(platform: Platform, job: Job) -> list[str]:
    events: list[dict[str, Any]] = platform.call("GET", f"/jobs/{job.id}/events").json()["items"]
    return [event["reason"] for event in events if event["kind"] == "note"]


def test_two_mirrored_workers_fit_a_model_with_legacy_keras(
    platform: Platform, tensorflow: Path
) -> None:
    job, text = run(
        platform, tensorflow, "--framework", "tensorflow", "--workers", "2", "train.py",
        folder=EXAMPLES / "tensorflow",
    )  # fmt: skip
    assert sorted(re.findall(r"worker \d of \d", text)) == ["worker 0 of 2", "worker 1 of 2"]
    assert len(losses(text)) == 6, "three epochs, told by both"
    first, _, last = sorted(set(losses(text)), reverse=True)
    assert last < first / 2, "both saw the same, falling losses"
    (note,) = notes(platform, job)
    assert "TF_USE_LEGACY_KERAS=1" in note


def test_one_command_runs_chief_workers_and_parameter_server(
    platform: Platform, tensorflow: Path
) -> None:
    _, text = run(
        platform, tensorflow, "--framework", "tensorflow", "--role", "chief=1",
        "--role", "worker=2", "--role", "ps=1", "train_parameter_server.py",
        folder=EXAMPLES / "tensorflow",
    )  # fmt: skip
    assert sorted(re.findall(r"\w+ \d serves", text)) == [
        "ps 0 serves",
        "worker 0 serves",
        "worker 1 serves",
    ]
    assert text.count("chief of 2 workers, 1 ps") == 1
    assert "the slope lives on /job:ps/" in text
    found = losses(text)
    assert len(found) == 5 and found[-1] < found[0] / 100
    assert "y = 2.00 x + 10.00" in text


def test_a_tensorflow_1_script_finds_its_line_in_ten_epochs(
    platform: Platform, tensorflow: Path
) -> None:
    job, text = run(
        platform, tensorflow, "--framework", "tensorflow1", "train.py",
        folder=EXAMPLES / "tensorflow1",
    )  # fmt: skip
    found = losses(text)
    assert len(found) == 10 and found[-1] < found[0] / 1000
    assert "y = 2.00 x + 10.00" in text
    assert any("tf_keras" in note for note in notes(platform, job))


def test_tensorflow_1_workers_share_a_parameter_server_without_a_chief(
    platform: Platform, tensorflow: Path
) -> None:
    _, text = run(
        platform, tensorflow, "--framework", "tensorflow1", "--role", "worker=2", "--role", "ps=1",
        "train_distributed.py", folder=EXAMPLES / "tensorflow1",
    )  # fmt: skip
    assert sorted(re.findall(r"worker \d of \d", text)) == ["worker 0 of 2", "worker 1 of 2"]
    assert "ps 0 serves" in text
    assert text.count("y = 2.00 x + 10.00") == 2, "both see the one model"


EVERY_IMPORT = """
import tensorflow as tf
import tensorflow.keras as keras
from tensorflow import layers
from tensorflow.train import Saver
from tensorflow.python.framework import ops
import tensorflow.compat.v2 as tf2
try:
    from tensorflow.examples.tutorials.mnist import input_data
except ImportError as err:
    print(err)
with tf.Session() as session:
    y = layers.dense(keras.layers.Flatten()(tf.ones([2, 3])), 1, kernel_initializer="ones")
    session.run(tf.global_variables_initializer())
    print(Saver().__class__.__name__, session.run(y).tolist(), isinstance(y.graph, ops.Graph))
print(tf.__name__, tf2.constant(1).shape, tf.executing_eagerly())
"""


def test_the_forms_of_import_work_with_the_real_tensorflow_1_api(
    platform: Platform, tensorflow: Path, tmp_path: Path
) -> None:
    (tmp_path / "imports.py").write_text(EVERY_IMPORT)
    _, text = run(
        platform, tensorflow, "--framework", "tensorflow1", "imports.py", folder=tmp_path
    )
    assert text.splitlines() == [
        "No module named 'tensorflow.examples'",
        "Saver [[3.0], [3.0]] True",
        "tensorflow.compat.v1 () False",
    ]


def test_a_trainer_package_writes_to_its_job_dir(
    platform: Platform, tensorflow: Path, tmp_path: Path
) -> None:
    _, text = run(
        platform, tensorflow, "--framework", "tensorflow", "--package-path", "trainer",
        "--module-name", "trainer.task", "--job-dir", str(tmp_path / "out"), "--", "--epochs", "3",
        folder=EXAMPLES / "cloud-ml",
    )  # fmt: skip
    found = losses(text)
    assert len(found) == 3 and found[-1] < found[0]
    assert (tmp_path / "out" / "model.index").is_file()


def test_keras_on_torch_trains_on_two_workers_as_on_one(platform: Platform, keras: Path) -> None:
    words = ("--framework", "keras", "--env", "OMP_NUM_THREADS=1")
    _, text = run(platform, keras, *words, "--workers", "2", "train.py", folder=EXAMPLES / "keras")
    assert sorted(re.findall(r"rank \d of \d", text)) == ["rank 0 of 2", "rank 1 of 2"]
    together = losses(text)
    assert len(together) == 3 and together[-1] < together[0] / 2
    _, text = run(platform, keras, *words, "train.py", folder=EXAMPLES / "keras")
    alone = losses(text)
    assert len(alone) == 3 and alone[-1] < alone[0] / 2


TRACED = """
import tensorflow as tf
x = tf.random.normal((64, 64))
step = tf.function(lambda x: tf.linalg.matmul(x, x))
step(x)
print("up", flush=True)
while True:
    step(x)
"""


def test_a_trace_of_tensorflow_is_written_and_kept_where_a_board_looks_for_it(
    platform: Platform, tensorflow: Path, tmp_path: Path
) -> None:
    job = platform.submit([str(tensorflow), "-c", TRACED])
    wait_for(lambda: "up" in platform.logs(job), 240, "it trains")
    out = str(tmp_path / "seen")
    done = platform.cli("debug", "profile", "--trace", "--seconds", "1", "--out", out, job.id)
    assert done.returncode == 0, done.stderr
    [path] = done.stdout.split()
    assert path.endswith(".xplane.pb") and b"MatMul" in Path(path).read_bytes()
    [kept] = platform.client.http.get(f"/runs/{job.id}/artifacts", {"path": "profiles"})["items"]
    where = {"path": f"{kept['path']}/plugins/profile"}
    assert platform.client.http.get(f"/runs/{job.id}/artifacts", where)["items"]
    assert platform.client.jobs.get(job.id).state == "running", "it goes on"
    platform.client.jobs.stop(job.id, now=True)
