"""R-S8: a pickle is a program, and neither the server nor the client ever runs it.

Canaries write a file when somebody opens them. They come in by every door (code, outputs,
checkpoints, artifacts, MLflow's wire, the registry), are listed, described and brought home; and a
bar keeps every reader of pickles out of the sources of these parts.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import pickle
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml

from windlass.core.errors import InvalidInput
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

SOURCE = Path(__file__).parents[2] / "src" / "windlass"

# -- the bar

KEPT_CLEAN = (
    "cli", "client", "contracts", "core", "engines", "patterns", "scheduler", "server", "tune",
    "worker",
)  # fmt: skip
"""All but what runs as the user's own program: `job`, `train`, `automl`'s trials, the tests'."""
READERS = {
    "_pickle", "cPickle", "cloudpickle", "copyreg", "dill", "joblib", "marshal", "pickle",
    "pickletools", "shelve", "skops", "torch", "keras",
}  # fmt: skip
WRITERS = {
    ("client/crossvalidation.py", "joblib"): "the caller's own estimator, for the caller's jobs",
    ("worker/pack.py", "marshal"): "our own code, compiled",
}
"""Who may import one of these all the same: it calls `dump` and `dumps`, and nothing else."""
YAML = {"load", "load_all"}
UNSAFE_NAMES = {
    "read_pickle", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all", "PickleType",
    "UnsafeLoader", "FullLoader",
}  # fmt: skip

SUSPECT = re.compile("|".join([*READERS, *UNSAFE_NAMES, "yaml", "numpy", "np"]))
"""A source without any of these words need not be parsed."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in KEPT_CLEAN:
        found = sorted((SOURCE / folder).rglob("*.py"))
        assert found, f"{folder} is no more: take it out of the list"
        for path in found:
            text = path.read_text("utf-8")
            name = path.relative_to(SOURCE).as_posix()
            if SUSPECT.search(text) and not name.startswith("cli/demos/"):  # programs of jobs
                yield name, ast.parse(text)


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()


def called(node: ast.AST) -> tuple[str, str]:
    """(`yaml`, `load`) of `yaml.load(…)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return (owner.id if isinstance(owner, ast.Name) else ""), node.func.attr
    return "", ""


def test_nothing_that_opens_pickles_is_in_the_sources() -> None:
    wrong, met = [], set()
    for name, tree in modules():
        for node in ast.walk(tree):
            where = f"{name}:{getattr(node, 'lineno', 0)}"
            for module in imported(node) & READERS:
                met.add((name, module))
                if (name, module) not in WRITERS:
                    wrong.append(f"{where} imports {module}")
            owner, verb = called(node)
            if owner in READERS and verb not in ("dump", "dumps"):
                wrong.append(f"{where} calls {owner}.{verb}")
            if owner in ("numpy", "np") and verb == "load" and not _says(node, allow_pickle=False):
                wrong.append(f"{where} calls {owner}.load without allow_pickle=False")
            if owner == "yaml" and verb in YAML and not _is_safe(name, node):
                wrong.append(f"{where} calls yaml.{verb} with a loader that makes objects")
            mentioned = getattr(node, "attr", None) or getattr(node, "id", None)
            if mentioned in UNSAFE_NAMES:
                wrong.append(f"{where} names {mentioned}")
    assert not wrong, "\n".join(wrong)
    assert met == set(WRITERS), "an exception that is none any more"


def _says(node: ast.AST, **wanted: object) -> bool:
    assert isinstance(node, ast.Call)
    told = {
        each.arg: each.value.value
        for each in node.keywords
        if isinstance(each.value, ast.Constant)
    }
    return all(told.get(name) is value for name, value in wanted.items())


def _is_safe(name: str, node: ast.AST) -> bool:
    """Its loader is a SafeLoader, or one that was made of it."""
    assert isinstance(node, ast.Call)
    given = [each.value for each in node.keywords if each.arg == "Loader"] + node.args[1:2]
    if len(given) != 1 or not isinstance(given[0], ast.Name):
        return False
    module = importlib.import_module("windlass." + name[:-3].replace("/", "."))
    loader = getattr(module, given[0].id, None)
    unsafe = (yaml.UnsafeLoader, yaml.FullLoader)
    return (
        isinstance(loader, type)
        and issubclass(loader, yaml.SafeLoader)
        and not issubclass(loader, unsafe)
    )


# -- canaries


class Canary:
    """Whoever unpickles it writes a file."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trap,))


def _array(canary: Canary) -> bytes:
    """An array of objects, as numpy.save writes one."""
    made = io.BytesIO()
    numpy.save(made, numpy.array([canary], dtype=object), allow_pickle=True)
    return made.getvalue()


def _archive(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content)
    return made.getvalue()


def canaries(trap: Path) -> dict[str, bytes]:
    """Files whose readers run what is in them, by their usual names, and one in disguise."""
    plain = pickle.dumps(Canary(trap))
    return {
        "model.pkl": plain,
        "model.joblib": plain,
        "weights.bin": plain,
        "old.pkl": pickle.dumps(Canary(trap), protocol=0),
        "array.npy": _array(Canary(trap)),
        "predictions.npz": _archive("truth.npy", _array(Canary(trap))),
        "net.pt": _archive("archive/data.pkl", plain),
        "conda.yaml": f"!!python/object/apply:builtins.open ['{trap}', 'w']\n".encode(),
    }  # fmt: skip


OPENED: dict[str, Callable[[bytes], object]] = {
    "model.pkl": pickle.loads,
    "model.joblib": pickle.loads,
    "weights.bin": pickle.loads,
    "old.pkl": pickle.loads,
    "array.npy": lambda data: numpy.load(io.BytesIO(data), allow_pickle=True),
    "predictions.npz": lambda data: numpy.load(io.BytesIO(data), allow_pickle=True)["truth"],
    "net.pt": lambda data: pickle.loads(
        zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl")
    ),
    "conda.yaml": lambda data: yaml.unsafe_load(data).close(),
}


FLAGGED = {"model.pkl", "model.joblib", "weights.bin", "old.pkl", "array.npy", "net.pt"}


def test_each_canary_sings_when_it_is_opened(tmp_path: Path) -> None:
    """Or what follows proves nothing."""
    trap = tmp_path / "trap"
    for name, content in canaries(trap).items():
        OPENED[name](content)
        assert trap.exists(), name
        trap.unlink()


class Cage:
    """A server, somebody who works there, and a folder of canaries."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.people = People(platform)
        self.people.project("red")
        self.ann = self.people.user("ann", project="red", role="member")
        self.trap = folder / "opened"
        self.folder = folder / "birds"
        self.folder.mkdir()
        self.names = sorted(canaries(self.trap))
        for name, content in canaries(self.trap).items():
            (self.folder / name).write_bytes(content)

    def cli(self, *words: str, project: str = "red") -> str:
        done = self.platform.cli(*words, "--project", project, cwd=self.folder.parent)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def silent(self) -> None:
        assert not self.trap.exists(), "a canary was opened"


@pytest.fixture(scope="module")
def cage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cage]:
    folder = tmp_path_factory.mktemp("cage")
    with Platform(folder / "home") as platform:
        yield Cage(platform, folder)


@pytest.fixture
def token(cage: Cage) -> Iterator[Caller]:
    made = cage.people.token(cage.ann, "write", name="wire")
    yield made
    for each in cage.ann.ok("GET", "/tokens")["items"]:
        cage.ann.ok("DELETE", f"/tokens/{each['id']}")


LEAVES = """
import os, shutil
for folder in ("WINDLASS_OUTPUT_DIR", "WINDLASS_CHECKPOINT_DIR"):
    where = os.path.join(os.environ[folder], "checkpoint-7")
    os.mkdir(where)
    for name in os.listdir("."):
        if name != "leaves.py":
            shutil.copy(name, where)
print("left", flush=True)
"""


def test_what_a_job_brings_and_leaves_is_never_opened(cage: Cage, tmp_path: Path) -> None:
    (cage.folder / "leaves.py").write_text(LEAVES)
    with cage.ann.inside("red").client() as client:
        job = client.jobs.submit(run=[sys.executable, "leaves.py"], code=cage.folder, name="birds")
        (cage.folder / "leaves.py").unlink()
        ended = client.jobs.wait(job.id, timeout_seconds=240)
        assert ended.state == "succeeded", list(client.jobs.logs(job.id))
        [saved] = wait_for(lambda: list(client.checkpoints.list(job.id)), 60, "it is catalogued")
        assert saved["step"] == 7
        found = client.checkpoints.get(job.id, "7")
        names = {file["path"].rpartition("/")[2] for file in found["files"]}
        assert names == set(cage.names)
    cage.cli("show", "birds")
    cage.cli("checkpoint", "show", "birds", "7")
    cage.cli("checkpoint", "get", "birds", "7", "--dir", str(tmp_path / "home"))
    assert sorted(path.name for path in (tmp_path / "home").rglob("*.pkl"))
    listed = cage.ann.ok("GET", f"/runs/{job.id}/artifacts?path=checkpoint-7")["items"]
    assert {item["path"].rpartition("/")[2] for item in listed} == set(cage.names)
    for name in cage.names:
        code = cage.ann.call("GET", f"/jobs/{job.id}/code/{name}")
        left = cage.ann.call("GET", f"/runs/{job.id}/artifacts/checkpoint-7/{name}")
        assert left.content == (cage.folder / name).read_bytes()
        assert code.status_code in (200, 422), (name, code.text)  # what is no text is not shown
    made = cage.ann.ok("POST", "/models/left/versions", {"run": job.id, "path": "checkpoint-7"})
    assert FLAGGED <= {path.rpartition("/")[2] for path in made["unsafe"]}
    cage.silent()


def test_what_comes_by_mlflows_wire_is_never_opened(cage: Cage, token: Caller) -> None:
    api = "/mlflow/red/api/2.0/mlflow"

    def ask(method: str, path: str, body: Any = None) -> Any:
        return token.ok(method, path, body, root="")

    run = ask("POST", f"{api}/runs/create", {"experiment_id": "0"})["run"]["info"]
    for name in cage.names:
        content = (cage.folder / name).read_bytes()
        where = f"{api}-artifacts/artifacts/0/{run['run_id']}/artifacts/model/{name}"
        answer = token.call("PUT", where, data=content, root="")
        assert answer.status_code == 200, answer.text
        assert token.call("GET", where, root="").content == content
    found = ask("GET", f"{api}/artifacts/list?run_id={run['run_id']}&path=model")["files"]
    assert len(found) == len(cage.names)
    ask("POST", f"{api}/registered-models/create", {"name": "wired"})
    body = {"name": "wired", "source": f"{run['artifact_uri']}/model", "run_id": run["run_id"]}
    made = ask("POST", f"{api}/model-versions/create", body)["model_version"]
    assert made["version"] == "1"
    about = cage.ann.ok("GET", "/models/wired/versions/1")
    assert FLAGGED <= set(about["unsafe"])
    cage.silent()


def test_a_model_of_canaries_is_flagged_shown_compared_and_brought_unopened(
    cage: Cage, tmp_path: Path
) -> None:
    made = json.loads(
        cage.cli("model", "register", str(cage.folder), "--as", "birds", "-o", "json")
    )
    flagged = set(made["unsafe"])
    assert {
        "model.pkl",
        "model.joblib",
        "weights.bin",
        "old.pkl",
        "array.npy",
        "net.pt",
    } <= flagged
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.pkl").write_bytes(pickle.dumps(Canary(cage.trap), protocol=2))
    cage.cli("model", "register", str(tmp_path / "other"), "--as", "birds", "--alias", "champion")
    cage.cli("model", "ls")
    assert "unsafe: pickle" in cage.cli("model", "show", "birds@1")
    cage.cli("model", "diff", "birds@1", "birds@champion")
    cage.cli("model", "get", "birds@1", str(tmp_path / "got"))
    for name in cage.names:
        assert (tmp_path / "got" / name).read_bytes() == (cage.folder / name).read_bytes()
    cage.silent()


def test_a_job_is_handed_a_model_of_canaries_unopened(cage: Cage) -> None:
    with cage.ann.inside("red").client() as client:
        client.models.register_files("handed", cage.folder)
        looks = "import os, windlass; print(sorted(os.listdir(windlass.context().start_from)))"
        job = client.jobs.submit(
            run=[sys.executable, "-c", looks], start_from={"model": "handed@1"}
        )
        ended = client.jobs.wait(job.id, timeout_seconds=240)
        text = "".join(line["text"] for line in client.jobs.logs(job.id))
        assert ended.state == "succeeded" and "model.joblib" in text, text
    cage.silent()


def test_predictions_that_are_objects_are_refused_and_not_opened(cage: Cage) -> None:
    from windlass.client import predictions

    with pytest.raises(InvalidInput, match="holds no predictions"):
        predictions.read(cage.folder / "predictions.npz")
    cage.silent()


def test_a_job_file_makes_no_objects(cage: Cage) -> None:
    done = cage.platform.cli("apply", "-f", str(cage.folder / "conda.yaml"), "-y")
    assert done.returncode != 0 and "conda.yaml" in done.stderr
    cage.silent()
