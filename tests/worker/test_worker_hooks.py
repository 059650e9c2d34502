"""Start-up hooks and probes: what a framework's contract has done in and asked of a rank's Python.

The package `tensorflow` here is a small stand-in with the shape of the real one, which
`tests/frameworks/test_tensorflow.py` uses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worker_lab import Lab, Worker

PACKAGE = {
    "tensorflow/__init__.py": """
version = 2
from tensorflow import compat, train, keras
def inner():
    import tensorflow
    from tensorflow.python import late
    return tensorflow.version, late.version
""",
    "tensorflow/train.py": "version = 2\n",
    "tensorflow/keras.py": "version = 2\n",
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/late.py": "import tensorflow as tf\nversion = tf.version\n",
    "tensorflow/compat/__init__.py": "from tensorflow.compat import v1\n",
    "tensorflow/compat/v1/__init__.py": """
version = 1
disabled = 0
from tensorflow.compat.v1 import train
def disable_v2_behavior():
    global disabled
    disabled += 1
""",
    "tensorflow/compat/v1/train.py": "version = 1\ndef Saver(): return 1\n",
    "beside.py": "import tensorflow as tf\nversion = tf.version\n",
}


def lay(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def run(lab: Lab, code: str, framework: str = "tensorflow1", **changes: Any) -> Worker:
    lab.plane.framework = framework
    worker = lab.worker(code, **changes).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    return worker


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The variables of a job in whose Python the package is installed."""
    return {"PYTHONPATH": lay(tmp_path / "site-packages", PACKAGE)}


def notes(lab: Lab) -> list[str]:
    return [
        note["text"]
        for _, name, body in lab.plane.calls
        if name == "beat"
        for note in body["notes"]
        if note["kind"] == "note"
    ]


def test_a_users_import_gives_version_1_in_all_its_forms(
    lab: Lab, installed: dict[str, str]
) -> None:
    code = """
import tensorflow as tf
import tensorflow
import tensorflow.train as train
from tensorflow import train as again
from tensorflow.train import Saver
import tensorflow.train
print(tf.version, tensorflow.version, train.version, again.version, Saver(), tf.disabled)
"""
    assert run(lab, code, vars=installed).logs() == b"1 1 1 1 1 1\n"


def test_what_is_installed_goes_on_to_see_the_real_package(
    lab: Lab, installed: dict[str, str]
) -> None:
    code = """
import sys
import tensorflow as tf
import beside
real = sys.modules["tensorflow"]
from tensorflow.python import late
print(tf.version, beside.version, real.inner(), late.version)
"""
    assert run(lab, code, vars=installed).logs() == b"1 2 (2, 2) 2\n"


def test_a_users_own_modules_are_users_too_and_what_is_absent_stays_absent(
    lab: Lab, installed: dict[str, str], tmp_path: Path
) -> None:
    mine = lay(tmp_path / "mine", {"model.py": "import tensorflow as tf\nversion = tf.version\n"})
    installed["PYTHONPATH"] += ":" + mine
    code = """
import model
print(model.version)
from tensorflow.keras import version
print(version)
for name in ("tensorflow.examples.tutorials", "tensorflow.contrib.slim", "tensorflow.nothing"):
    try:
        exec("import " + name)
    except ImportError as err:
        print(err)
"""
    said = run(lab, code, vars=installed).logs().decode().splitlines()
    assert said[:2] == ["1", "2"], "version 1 has no keras here: the real one, then"
    assert said[2] == "No module named 'tensorflow.examples'"
    assert said[3] == "No module named 'tensorflow.contrib'"
    assert said[4] == "No module named 'tensorflow.nothing'"


def test_without_the_framework_nothing_is_hooked(lab: Lab, installed: dict[str, str]) -> None:
    code = """
import builtins, os
import tensorflow as tf
print(tf.version, type(builtins.__import__).__name__, "WINDLASS_HOOKS" in os.environ)
"""
    worker = run(lab, code, framework="python", vars=installed)
    assert worker.logs() == b"2 builtin_function_or_method False\n"
    assert not list(worker.directory.glob("debug/hook/windlass_hook_*"))


LOOK = "import os; print(os.environ.get('TF_USE_LEGACY_KERAS'))"


def test_legacy_keras_is_chosen_where_it_is_installed_and_the_events_say_so(
    lab: Lab, tmp_path: Path
) -> None:
    path = lay(tmp_path / "site-packages", {"tf_keras/__init__.py": "raise SystemExit(1)"})
    worker = run(lab, LOOK, framework="tensorflow", nproc=2, vars={"PYTHONPATH": path})
    assert worker.logs() == b"1\n"
    (note,) = notes(lab)
    assert "TF_USE_LEGACY_KERAS=1" in note


def test_without_it_the_events_say_what_to_install(lab: Lab, tmp_path: Path) -> None:
    worker = run(lab, LOOK, framework="tensorflow", nproc=2)
    assert worker.logs() == b"None\n"
    (note,) = notes(lab)
    assert "pip install tf_keras" in note


def test_what_the_user_has_decided_is_not_asked(lab: Lab, tmp_path: Path) -> None:
    path = lay(tmp_path / "site-packages", {"tf_keras/__init__.py": ""})
    variables = {"PYTHONPATH": path, "TF_USE_LEGACY_KERAS": "0"}
    worker = run(lab, LOOK, framework="tensorflow", nproc=2, vars=variables)
    assert worker.logs() == b"0\n"
    assert notes(lab) == []


def test_a_python_that_does_not_answer_is_taken_as_one_without(lab: Lab, tmp_path: Path) -> None:
    worker = run(
        lab, ["sh", "-c", "echo $TF_USE_LEGACY_KERAS-"], framework="tensorflow", nproc=2,
        python=str(tmp_path / "no-python"),
    )  # fmt: skip
    assert worker.logs() == b"-\n"
    (note,) = notes(lab)
    assert "did not say whether it has tf_keras" in note
