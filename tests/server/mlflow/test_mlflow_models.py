"""Real clients log models, register them, name them by alias and load them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from windlass.testing.platform import Platform

SCRIPT = """
import json, os, pathlib, sys, tempfile, warnings
warnings.simplefilter("ignore")
import numpy, mlflow
from mlflow import MlflowClient

name = "NAME"

class Add(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return model_input + 1

if "MLFLOW_RUN_ID" not in os.environ:
    mlflow.set_experiment("models of " + name)
with mlflow.start_run() as run:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "notes.txt").write_text("hello")
        mlflow.log_artifacts(folder, "files")
        in_parts = {"MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "true",
                    "MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "1"}
        os.environ.update(in_parts)
        mlflow.log_artifacts(folder, "large")
        for key in in_parts:
            del os.environ[key]
    how = {"name": "model"} if int(mlflow.__version__[0]) > 2 else {"artifact_path": "model"}
    mlflow.pyfunc.log_model(
        python_model=Add(), registered_model_name=name, pip_requirements=["mlflow"], **how
    )
client = MlflowClient()
client.set_registered_model_alias(name, "champion", "1")
client.set_model_version_tag(name, "1", "checked", "yes")
loaded = mlflow.pyfunc.load_model(f"models:/{name}@champion")
told = {"version": mlflow.__version__, "run": run.info.run_id}
told["predicted"] = loaded.predict(numpy.array([1, 2])).tolist()
client.transition_model_version_stage(name, "1", "Production", archive_existing_versions=True)
staged = mlflow.pyfunc.load_model(f"models:/{name}/Production")
told["staged"] = staged.predict(numpy.array([5])).tolist()
told["again"] = mlflow.register_model(f"runs:/{run.info.run_id}/model", name).version
told["text"] = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/files/notes.txt")
told["whole"] = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/large/notes.txt")
told["listed"] = sorted(file.path for file in client.list_artifacts(run.info.run_id, "files"))
told["models"] = [model.name for model in client.search_registered_models(f"name = '{name}'")]
told["versions"] = [each.version for each in client.search_model_versions(f"name = '{name}'")]
found = client.get_model_version_by_alias(name, "champion")
told["found"] = [found.version, found.current_stage, found.tags, list(found.aliases)]
print(json.dumps(told))
"""


def check(told: dict[str, object], platform: Platform, name: str) -> None:
    assert told["predicted"] == [2, 3] and told["staged"] == [6]
    assert told["again"] in ("2", 2) and told["versions"] == ["2", "1"]
    assert (told["text"], told["listed"]) == ("hello", ["files/notes.txt"])
    assert told["whole"] == "hello", "a client that would send parts sends the whole"
    assert told["models"] == [name]
    assert told["found"] == ["1", "Production", {"checked": "yes"}, ["champion"]]
    seen = platform.client.models.version(f"{name}@champion")
    assert seen["run"] == told["run"]
    assert seen["unsafe"] == ["python_model.pkl"], "it is a pickle, and we say so"
    moves = platform.client.models.get(name)["moves"]
    assert [(move["alias"], move["after"]) for move in moves] == [
        ("Production", 1), ("champion", 1),
    ]  # fmt: skip


def test_a_script_registers_a_model_and_loads_it_by_alias(
    newest: Path, script: Callable[..., str], ours: Platform
) -> None:
    told = json.loads(script(newest, SCRIPT.replace("NAME", "newest")).splitlines()[-1])
    check(told, ours, "newest")
    logged = ours.call("GET", "/audit?action=models.register").json()
    assert any(each["object"] == "newest@1" for each in logged["items"]), logged


OLDER = """
import json, pathlib, tempfile
import mlflow
from mlflow import MlflowClient

mlflow.set_experiment("models of an older client")
with mlflow.start_run() as run, tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "net.onnx").write_text("weights")
    mlflow.log_artifacts(folder, "model")
client = MlflowClient()
client.create_registered_model("older")
made = client.create_model_version("older", f"{run.info.artifact_uri}/model", run.info.run_id)
client.set_registered_model_alias("older", "champion", made.version)
found = client.get_model_version_by_alias("older", "champion")
uri = client.get_model_version_download_uri("older", found.version)
got = mlflow.artifacts.download_artifacts(uri)
print(json.dumps([found.version, (pathlib.Path(got) / "net.onnx").read_text()]))
"""


def test_an_older_client_registers_files_and_gets_them_by_alias(
    older: Path, script: Callable[..., str], ours: Platform
) -> None:
    assert json.loads(script(older, OLDER).splitlines()[-1]) == ["1", "weights"]
    assert ours.client.models.version("older@champion")["format"] == "onnx"


def test_the_same_script_runs_in_a_job(newest: Path, ours: Platform, tmp_path: Path) -> None:
    # Sent as code: where the server has several users, a job does not see this machine's /tmp.
    (tmp_path / "train.py").write_text(SCRIPT.replace("NAME", "in-a-job"))
    job = ours.client.jobs.submit(
        run=[str(newest), "train.py"], name="registers", limits={"time": "10m"}, code=tmp_path
    )
    done = ours.wait(job, 240)
    assert done.state == "succeeded", ours.logs(job)
    told = json.loads(ours.logs(job, stream="out").strip().splitlines()[-1])
    check(told, ours, "in-a-job")
    assert told["run"] == job.id
    seen = ours.client.models.version("in-a-job")
    assert seen["lineage"]["job"]["name"] == "registers"
