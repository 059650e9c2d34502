"""Foreign job files become ours: by samples with golden files, by table, and by wild input.

`python tests/client/test_importers.py` writes the golden files anew; look at the difference.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.client import documents
from windlass.client.importers import quantities, shellscript
from windlass.client.importers.base import Fate, Imported, Note
from windlass.client.importers.jobtext import render
from windlass.client.importers.registry import convert, detect, filled
from windlass.client.importers.slurm_options import Shape
from windlass.core.errors import InvalidInput
from windlass.core.jobs import FILL_IN, MAX_MEMORY, JobSpec

SAMPLES = Path(__file__).parent / "importer_samples"
GOLDEN = SAMPLES / "golden"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.is_file())


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def imported(name: str) -> list[Imported]:
    return convert(sample(name), name)


def as_text(name: str) -> str:
    return render(imported(name), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_becomes_the_golden_job_file(name: str) -> None:
    assert as_text(name) == (GOLDEN / f"{name}.golden").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_job_file_reads_back_as_the_same_job(name: str) -> None:
    jobs = imported(name)
    back = documents.load(as_text(name), "job.yaml")
    assert [JobSpec.model_validate(each) for each in back] == [
        JobSpec.model_validate(job.spec) for job in jobs
    ]


def fields(job: Imported, fate: Fate) -> set[str]:
    return {note.field for note in job.having(fate)}


def test_every_field_of_a_tfjob_is_accounted_for() -> None:
    (job,) = imported("tfjob.yaml")
    worker = "spec.tfReplicaSpecs.Worker"
    assert fields(job, Fate.MAPPED) >= {
        "metadata.name", f"{worker}.replicas", f"{worker}.restartPolicy",
        "spec.runPolicy.backoffLimit", "spec.runPolicy.activeDeadlineSeconds",
        f"{worker}.template.spec.containers[1].resources.limits.nvidia.com/gpu",
        f"{worker}.template.spec.terminationGracePeriodSeconds",
    }  # fmt: skip
    assert fields(job, Fate.DROPPED) >= {
        "spec.runPolicy.cleanPodPolicy", "spec.tfReplicaSpecs.Evaluator",
        f"{worker}.template.spec.volumes", f"{worker}.template.spec.nodeSelector",
    }  # fmt: skip
    assert fields(job, Fate.BY_HAND) >= {
        "spec.runPolicy.schedulingPolicy.priorityClass",
        f"{worker}.template.spec.containers[0]",
        f"{worker}.template.spec.containers[1].env[2]",
    }


def test_a_field_nobody_knows_is_never_passed_over() -> None:
    document = yaml.safe_load(sample("tfjob.yaml"))
    document["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["shareProcessNamespace"] = True
    document["extra"] = {"a": 1}
    (job,) = convert(json.dumps(document))
    assert fields(job, Fate.BY_HAND) >= {
        "extra", "spec.tfReplicaSpecs.PS.template.spec.shareProcessNamespace",
    }  # fmt: skip


def test_what_every_role_shares_is_said_once() -> None:
    (job,) = imported("mpijob_v1.yaml")
    assert job.spec["run"][0] == "mpirun"
    assert "run" not in job.spec["roles"]["launcher"]
    assert job.spec["roles"]["worker"] == {"count": 2, "nproc": 4, "gpus": 4, "memory": "64GiB"}


def test_servers_of_a_paddlejob_get_the_name_that_our_contract_knows() -> None:
    template = {"template": pod(command=["python", "t.py"])}
    spec = {"paddleReplicaSpecs": {"Master": template, "Worker": template}}
    job = only({"apiVersion": "kubeflow.org/v1", "kind": "PaddleJob", "spec": spec})
    assert list(job.spec["roles"]) == ["server", "worker"]


def test_what_the_contract_has_against_the_roles_is_in_the_report() -> None:
    template = {"template": pod(command=["mpirun", "x"])}
    spec = {"mpiReplicaSpecs": {"Launcher": template}}
    job = only({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "spec": spec})
    assert any("mpi needs workers" in note.what for note in job.having(Fate.BY_HAND))


def test_a_list_of_the_cluster_is_taken_apart() -> None:
    one = yaml.safe_load(sample("trainjob.yaml"))
    jobs = convert(json.dumps({"kind": "List", "apiVersion": "v1", "items": [one, one]}))
    assert [job.spec["name"] for job in jobs] == ["bert", "bert"]


def test_a_foreign_file_cannot_smuggle_fields_into_the_job_file() -> None:
    """Notes stand as comments: a line break in one must not end the comment."""
    document = pytorch_job(image="x\nrun: evil", workingDir="y\u2028run: evil")
    document["a\nrun: evil"] = "z\x85run: evil"
    text = render([only(document)], "x\nrun: evil")
    assert documents.load(text, "x")[0]["run"] == "python train.py"
    assert text.isascii()


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pytorch", **container}]}}


def pytorch_job(**container: Any) -> dict[str, Any]:
    container.setdefault("command", ["python", "train.py"])
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "x"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": pod(**container)}}},
    }


def only(document: dict[str, Any]) -> Imported:
    (job,) = convert(json.dumps(document), "x.yaml")
    return job


@pytest.mark.parametrize(
    ("resources", "role"),
    [
        ({"limits": {"cpu": "500m"}}, {"cpus": 0.5}),
        ({"limits": {"cpu": 2}}, {"cpus": 2}),
        ({"limits": {"cpu": "1500m"}, "requests": {"cpu": 1}}, {"cpus": 1.5}),
        ({"requests": {"cpu": "0.1"}}, {"cpus": 0.1}),
        ({"limits": {"cpu": "100n"}}, {"cpus": 0.001}),
        ({"limits": {"memory": "8Gi"}}, {"memory": "8GiB"}),
        ({"limits": {"memory": "16G"}}, {"memory": "16GB"}),
        ({"limits": {"memory": "1536Mi"}}, {"memory": "1536MiB"}),
        ({"limits": {"memory": 123}}, {"memory": 123}),
        ({"limits": {"memory": "1e3"}}, {"memory": 1000}),
        ({"limits": {"memory": "128974848000m"}}, {"memory": "123MiB"}),
        ({"limits": {"nvidia.com/gpu": "1"}}, {"gpus": 1}),
        ({"limits": {"amd.com/gpu": 2}}, {"gpus": 2, "nproc": 1}),
        ({}, {}),
    ],
)
def test_resources_of_kubernetes_become_those_of_a_role(resources, role) -> None:
    found = only(pytorch_job(resources=resources)).spec["roles"]["worker"]
    assert found == {"count": 1, **role}


@pytest.mark.parametrize(
    ("policies", "backoff", "retry"),
    [
        (["Never"], None, {"times": 0}),
        (["Never"], 5, {"times": 0}),
        (["ExitCode"], 5, {"times": 5, "on": ["lost", "signal"]}),
        (["OnFailure"], None, {"on": ["lost", "failed"]}),
        (["Always"], 0, {"times": 0, "on": ["lost", "failed"]}),
        (["Never", "OnFailure"], 2, {"times": 2, "on": ["lost", "failed"]}),
        ([None], 2, {"times": 2}),
        ([None], None, None),
    ],
)
def test_restart_policies_become_rules_of_retry(policies, backoff, retry) -> None:
    document = pytorch_job()
    replicas = document["spec"]["pytorchReplicaSpecs"]
    replicas["Master"] = copy.deepcopy(replicas["Worker"])
    for name, policy in zip(("Worker", "Master"), policies, strict=False):
        replicas[name]["restartPolicy"] = policy
    document["spec"]["runPolicy"] = {"backoffLimit": backoff}
    assert only(document).spec.get("retry") == retry


@pytest.mark.parametrize(
    ("command", "run", "nproc"),
    [
        (["torchrun", "--nproc_per_node=4", "train.py"], ["torchrun", "train.py"], 4),
        (["torchrun", "--nproc-per-node", "gpu", "t.py"], ["torchrun", "t.py"], None),
        (["torchrun", "--standalone", "t.py", "--nnodes"], ["torchrun", "t.py", "--nnodes"], None),
        (["torchrun", "--tee", "3", "-m", "pkg"], ["torchrun", "--tee", "3", "-m", "pkg"], None),
        (
            ["python", "-m", "torch.distributed.run", "--node_rank", "$(R)", "--no-python", "t"],
            ["python", "-m", "torch.distributed.run", "--no-python", "t"],
            None,
        ),
        (["torchrun", "--rdzv-conf"], ["torchrun"], None),
        (["python", "t.py", "--nnodes=3"], ["python", "t.py", "--nnodes=3"], 1),
    ],
)  # fmt: skip
def test_torchrun_is_not_told_twice_where_it_stands(command, run, nproc) -> None:
    job = only(pytorch_job(command=command, resources={"limits": {"nvidia.com/gpu": 8}}))
    assert job.spec["run"] == run
    assert job.spec["roles"]["worker"].get("nproc") == nproc


def test_variables_that_windlass_sets_are_left_out_and_named() -> None:
    env = [{"name": "MASTER_ADDR", "value": "a"}, {"name": "WINDLASS_X", "value": "b"}]
    env += [{"name": "my.var", "value": "c"}, {"name": "GOOD", "value": "$(MASTER_ADDR)/$$(NO)"}]
    job = only(pytorch_job(env=env))
    assert job.spec["environment"] == {"vars": {"GOOD": "a/$(NO)"}}
    assert {note.value for note in job.having(Fate.DROPPED)} >= {"MASTER_ADDR=a", "WINDLASS_X=b"}


ERRORS = [
    (lambda d: d.update(apiVersion="batch/v1"), "apiVersion: one that starts with kubeflow.org/"),
    (lambda d: d.update(metadata=[1]), "metadata: a mapping of fields was expected, found [1]"),
    (lambda d: d["metadata"].update(name=3), "metadata.name: text (put it in quotes)"),
    (lambda d: d.update(spec={}), "spec.pytorchReplicaSpecs: a PyTorchJob says its replicas"),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"].update(Boss={}),
        "spec.pytorchReplicaSpecs.Boss: no such replica; known: master, worker",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"].update(worker={}),
        "spec.pytorchReplicaSpecs.worker: the role worker stands twice",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].update(replicas="2"),
        "spec.pytorchReplicaSpecs.Worker.replicas: a whole number was expected, found '2'",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].update(replicas=-1),
        "replicas: a number from 0 to 100000 was expected, found -1",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].update(replicas=0),
        "spec.pytorchReplicaSpecs: at least one replica was expected",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].update(restartPolicy="Maybe"),
        "restartPolicy: one of Never, ExitCode, OnFailure, Always was expected, found 'Maybe'",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].pop("template"),
        "spec.pytorchReplicaSpecs.Worker.template: a pod template was expected, found None",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].update(template=pod()),
        "containers: neither command nor args",
    ),
    (
        lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].update(
            containers=[]
        ),
        "template.spec.containers: a list with at least one container was expected",
    ),
    (lambda d: d["spec"].update(nprocPerNode="many"), "spec.nprocPerNode: a whole number"),
    (lambda d: d["spec"].update(runPolicy={"suspend": "yes"}), "suspend: true or false"),
    (
        lambda d: d["spec"].update(runPolicy={"backoffLimit": 1.5}),
        "spec.runPolicy.backoffLimit: a whole number was expected, found 1.5",
    ),
]


@pytest.mark.parametrize(("spoil", "words"), ERRORS, ids=[words[:60] for _, words in ERRORS])
def test_wrong_fields_of_kubernetes_are_named_with_what_was_found(spoil, words) -> None:
    document = pytorch_job()
    spoil(document)
    with pytest.raises(InvalidInput) as caught:
        only(document)
    assert caught.value.message.startswith("x.yaml: ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"command": "python"}, "command: a list was expected, found 'python'"),
        ({"command": ["python", 3]}, "command[1]: text (put it in quotes) was expected, found 3"),
        ({"env": [{"value": "x"}]}, "env[0].name: a variable's name was expected, found None"),
        ({"env": [{"name": "A", "value": 1}]}, "env[0].value: text (put it in quotes)"),
        ({"resources": {"limits": {"cpu": "lots"}}}, "limits.cpu: an amount such as 2, 500m"),
        ({"resources": {"limits": {"cpu": True}}}, "limits.cpu: an amount"),
        ({"resources": {"limits": {"memory": "8GiB"}}}, "limits.memory: an amount"),
        ({"resources": {"limits": {"memory": "9999Ei"}}}, "an amount that a machine could have"),
        ({"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}, "a whole number up to 4096"),
        ({"image": 3}, "image: text"),
    ],
)
def test_wrong_containers_are_named_with_what_was_found(container, words) -> None:
    with pytest.raises(InvalidInput) as caught:
        only(pytorch_job(**container))
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("", "is empty", "known: TFJob, PyTorchJob"),
        ("[1]", "not a job: [1]", "known:"),
        ("kind: Deployment", "kind Deployment: not known here", "batch script with #SBATCH"),
        ("a: 1\nb: 2", "fields ['a', 'b']: not known here", "TrainJob (Kubeflow Trainer v2)"),
        ("kind: job\nrun: x", "a job of windlass already", "windlass apply"),
        ("a: 1\na: 2", "line 2: 'a' stands twice", ""),
        ("a: [", "line 1", ""),
        ("a: !!timestamp x", "a value cannot be read", ""),
        ("a: " + "9" * 5000, "a value cannot be read", ""),
        ("[" * 5000, "nested too deeply", ""),
        ("kind: List\nitems: 3", "kind List: not known here", ""),
        ("&a [*a]", "not a job", ""),
        ("a: &a [*a]", "not known here", ""),
    ],
)
def test_other_files_are_refused_with_the_known_kinds(text, words, hint) -> None:
    with pytest.raises(InvalidInput) as caught:
        convert(text, "x.yaml")
    assert caught.value.message.startswith("x.yaml")
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_values_that_unfold_without_end_are_shown_shortly() -> None:
    """Ten levels of ten aliases each: 10^10 items if it were written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 11)]
    document = "entrypoint: python x.py\n" + "\n".join(lines)
    (job,) = convert(document)
    assert all(len(note.value) < 5000 for note in job.notes)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_detected_by_its_shape(name: str) -> None:
    text = sample(name)
    document = text if name.endswith(".sbatch") else documents.load(text, name)[0]
    expected = {"sbatch": "Slurm", "determined": "Determined", "trainjob": "Trainer v2"}
    word = next((word for part, word in expected.items() if part in name), "(Kubeflow)")
    assert word in detect(document).name


# -- Slurm ----------------------------------------------------------------------------------


def batch(*header: str, line: str = "srun python train.py") -> Imported:
    text = "\n".join(["#!/bin/bash", *(f"#SBATCH {each}" for each in header), line])
    (job,) = convert(text, "dir/job.sh")
    return job


@pytest.mark.parametrize(
    ("header", "role"),
    [
        (["-N 2", "--ntasks-per-node=4", "--gres=gpu:4"], {"count": 2, "gpus": 4}),
        (["-N2", "--ntasks-per-node=1", "--gres=gpu:4"], {"count": 2, "gpus": 4, "nproc": 1}),
        (["--ntasks=8", "--ntasks-per-node=4"], {"count": 2, "nproc": 4}),
        (["-n 4", "--gpus-per-task=1"], {"count": 4, "gpus": 1}),
        (["-n 4", "--gpus=4"], {"count": 1, "gpus": 4}),
        (["-N 2 -n 4", "--gpus=v100:8"], {"count": 2, "gpus": 4, "nproc": 2}),
        (["--nodes=2-4", "--cpus-per-task 6"], {"count": 2, "cpus": 6}),
        (["-n 2", "-c 3", "--mem-per-cpu=1G"], {"count": 2, "cpus": 3, "memory": "3GiB"}),
        (["--gpus-per-node 1", "--mem-per-gpu=8G"], {"count": 1, "gpus": 1, "memory": "8GiB"}),
        (["--mem=4000"], {"count": 1, "memory": "4000MiB"}),
        (["--mem=0"], {"count": 1}),
        (["--gres=gpu,shard:2"], {"count": 1, "gpus": 1}),
        (["-N 3 -n 4"], {"count": 3, "nproc": 2}),
    ],
)  # fmt: skip
def test_the_header_of_a_batch_script_becomes_a_shape(header, role) -> None:
    assert batch(*header).spec["roles"]["worker"] == role


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90:30", 5430), ("2:30:00", 9000), ("1-12", 129600), ("1-12:30", 131400),
        ("1-12:30:05", 131405), ("0", None), ("UNLIMITED", None),
    ],
)  # fmt: skip
def test_times_of_slurm(text, seconds) -> None:
    assert quantities.slurm_seconds(text, "--time") == seconds


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("srun -n 1 --label -u python a.py", ["python", "a.py"]),
        ("srun --mpi=pmix -c 4 -- ./a.out x", ["./a.out", "x"]),
        ("A=1 srun python a.py | tee log", ["python", "a.py"]),
        ("srun python a.py &\nwait", ["python", "a.py"]),
        ("python a.py $SLURM_JOB_NUM_NODES", ["python", "a.py", "1"]),
        ("X=3\npython a.py ${X}", ["python", "a.py", "3"]),
        ("cat <<EOF > f\nsrun python no.py\nEOF\nsrun python a.py", ["python", "a.py"]),
        ("if [ -d x ]; then\n  ls\nfi\nsrun python a.py", ["python", "a.py"]),
        ("srun python a.py\nsrun python b.py", ["bash", "job.sh"]),
        ("for x in 1 2; do srun python a.py $x; done\n", ["bash", "job.sh"]),
        ("srun a --id $SLURM_PROCID", ["bash", "-c", 'exec a --id "$WINDLASS_RANK"']),
        ("srun python a.py '$(x)' \"a b\"", ["bash", "-c", 'exec python a.py "$(x)" \'a b\'']),
        ("horovodrun -np 4 -H a:4 python a.py", ["python", "a.py"]),
    ],
)  # fmt: skip
def test_the_line_that_starts_the_program_is_found(line, run) -> None:
    assert batch("-J x", line=line).spec["run"] == run


def test_a_program_without_srun_runs_once() -> None:
    job = batch("-N 2", "--gres=gpu:4", line="python train.py")
    assert job.spec["roles"]["worker"] == {"count": 1, "gpus": 4, "nproc": 1}
    assert any("one of 2 nodes" in note.what for note in job.having(Fate.BY_HAND))


@pytest.mark.parametrize(
    ("header", "line", "words"),
    [
        (["--nodes=many"], "srun x", "line 2 --nodes: a whole number from 1 on was expected"),
        (["--nodes=0"], "srun x", "line 2 --nodes: a whole number from 1 on was expected"),
        (["--time=soon"], "srun x", "line 2 --time: a time such as 90"),
        (["--mem=lots"], "srun x", "line 2 --mem: a size such as 4000"),
        (["-N 1", "--gres=gpu:some"], "srun x", "line 3 --gres"),
        (["--nodes"], "srun x", "line 2: '--nodes' needs a value"),
        (["nodes=2"], "srun x", "line 2: an option of sbatch was expected, found 'nodes=2'"),
        (["hetjob"], "srun x", "line 2: hetjob: a job of several parts"),
        (["--job-name='x"], "srun x", "line 2: No closing quotation"),
        (["-N 1"], "srun 'x", "line 3: No closing quotation"),
        (["-N 1"], "module load x", "no line of the script starts a program"),
        (["--signal=USR1@soon"], "srun x", "--signal: a signal such as USR1@120"),
        (["-n 999999999", "--ntasks-per-node=99999"], "srun x", "ranks of a member"),
    ],
)
def test_wrong_batch_scripts_are_refused_with_the_line(header, line, words) -> None:
    with pytest.raises(InvalidInput) as caught:
        batch(*header, line=line)
    assert words in caught.value.message


def test_a_header_line_after_a_command_is_left_out_as_slurm_does() -> None:
    job = batch("-N 1", line="cd x\n#SBATCH -N 4\nsrun python a.py")
    assert job.spec["roles"]["worker"] == {"count": 1}
    assert Note(
        Fate.DROPPED,
        "line 4",
        "#SBATCH -N 4",
        "Slurm itself ignores it: it stands after a command",
    ) in list(job.notes)


# -- Determined -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entrypoint", "run", "framework"),
    [
        ("python3 train.py", ["python3", "train.py"], None),
        (["python3", "a b.py"], ["python3", "a b.py"], None),
        ("cd x && python y.py", ["sh", "-c", "cd x && python y.py"], None),
        ("python -m determined.launch.horovod python t.py", ["python", "t.py"], "horovod"),
        ("python -m determined.launch.deepspeed -- t.py", ["t.py"], "pytorch"),
        ("model_def:Trial", [FILL_IN], None),
    ],
)
def test_entrypoints_of_determined(entrypoint, run, framework) -> None:
    job = only({"entrypoint": entrypoint, "resources": {"slots_per_trial": 0}})
    assert (job.spec["run"], job.spec.get("framework")) == (run, framework)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entrypoint": 3}, "entrypoint: a command was expected, found 3"),
        ({"entrypoint": ""}, "entrypoint: a command was expected"),
        ({"entrypoint": "python 'x"}, "entrypoint: a command (No closing quotation)"),
        ({"entrypoint": "python -m determined.launch.magic x.py"}, "a launcher known here: torch"),
        ({"entrypoint": "python -m determined.launch.horovod"}, "a script to run"),
        ({"resources": {"slots_per_trial": -1}}, "resources.slots_per_trial: a number from 0"),
        ({"max_restarts": "two"}, "max_restarts: a whole number was expected, found 'two'"),
        ({"environment": {"environment_variables": [1]}}, "environment_variables[0]: text"),
        ({"searcher": "single"}, "searcher: a mapping of fields was expected, found 'single'"),
    ],
)
def test_wrong_fields_of_determined_are_named(changes, words) -> None:
    with pytest.raises(InvalidInput) as caught:
        only({"entrypoint": "python x.py", **changes})
    assert words in caught.value.message


# -- whatever comes -------------------------------------------------------------------------

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=12),
    st.sampled_from(["auto", "gpu", "1", "500m", "8Gi", "$(X)", "${x}", "torchrun", "-m", "'"]),
)  # fmt: skip
WILD = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document."""
    found = [path] if path else []
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return found + [each for key, item in children for each in places(item, (*path, key))]


SHAPED = [
    document
    for name in NAMES
    if name.endswith(".yaml")
    for document in yaml.safe_load_all(sample(name))
    if document
]


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Another value at a place, unless the place is gone."""
    *parents, last = path
    try:
        for key in parents:
            document = document[key]
        document[last] = value
    except (KeyError, IndexError, TypeError):
        pass


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_stands_in_a_field_nothing_but_invalid_input_is_raised(
    data: st.DataObject,
) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(SHAPED)))
    for path in data.draw(st.lists(st.sampled_from(places(document)), min_size=1, max_size=3)):
        put(document, path, data.draw(WILD))
    try:
        job = detect(document).convert(document)
        JobSpec.model_validate(job.spec)
    except InvalidInput:
        return
    except ValueError as err:  # what `convert` turns into InvalidInput
        assert type(err).__name__ == "ValidationError"
        return
    assert JobSpec.model_validate(documents.load(render([job], "x"), "x")[0]) == (
        JobSpec.model_validate(job.spec)
    )


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_whatever_text_comes_nothing_but_invalid_input_is_raised(text: str) -> None:
    for head in ("", "#!/bin/sh\n#SBATCH -N 1\n", "#SBATCH "):
        try:
            convert(head + text)
        except InvalidInput as err:
            assert err.message


LINES = st.lists(
    st.sampled_from(
        ["srun", "python", "a.py", "$X", "${Y}", "$(", ")", "`x`", "'", '"', "|", ">", "2>&1",
         "&&", ";", "\n", "\\\n", "X=1", "export", "for", "do", "done", "if", "fi", "<<EOF", "EOF",
         "#", "-n", "4", "--gres=gpu:1", "torchrun", "--nnodes", "mpirun", "horovodrun",
         "$SLURM_PROCID", "#SBATCH"]
    ),
    max_size=25,
).map(" ".join)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(LINES)
def test_whatever_a_script_does_nothing_but_invalid_input_is_raised(text: str) -> None:
    try:
        (job,) = convert("#!/bin/sh\n#SBATCH -N 2\n" + text)
    except InvalidInput:
        return
    assert JobSpec.model_validate(filled(job.spec)).roles


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@settings(deadline=None)
@given(st.lists(WORDS, min_size=1))
def test_any_words_are_read_back_from_the_job_file(words: list[str]) -> None:
    job = Imported("x", {"run": words, "roles": {"worker": {"count": 1}}})
    back = documents.load(render([job], "x"), "x")[0]
    assert list(JobSpec.model_validate(back).run) == words


@settings(deadline=None)
@given(st.integers(0, MAX_MEMORY))
def test_a_size_is_written_exactly(amount: int) -> None:
    role = {"count": 1, "memory": quantities.size(amount)}
    assert JobSpec.model_validate({"run": "x", "roles": {"w": role}}).roles["w"].memory == amount


@settings(deadline=None)
@given(
    st.builds(
        Shape,
        **dict.fromkeys(
            ("nodes", "tasks", "tasks_per_node", "gpus"), st.none() | st.integers(1, 64)
        ),
    )
)
def test_a_shape_holds_every_task_and_gpu_that_was_asked_for(shape: Shape) -> None:
    if not (shape.nodes and shape.tasks_per_node):
        assert shape.members * shape.ranks >= (shape.tasks or 1)
    assert shape.members * shape.member_gpus >= (shape.gpus or 0)


def test_words_for_a_shell_keep_what_is_not_to_be_expanded() -> None:
    assert shellscript.for_shell(["a b", 'x"$Y\\', "*"]) == "'a b' \"x\\\"$Y\\\\\" '*'"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in NAMES:
        (GOLDEN / f"{each}.golden").write_text(as_text(each), encoding="utf-8")
