"""TF_CONFIG and its relatives, by table: a gang goes in, each process's variables come out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.contracts import registry
from windlass.contracts.base import Gang, Member


def member(role: str, index: int, nproc: int = 1, **changes: Any) -> Member:
    ports = {"chief": 2000, "master": 2000, "worker": 3000, "ps": 4000, "evaluator": 5000}
    first = ports.get(role, 6000) + 10 * index
    values = {
        "host": f"10.0.0.{index + 1}",
        "ports": tuple(range(first, first + nproc)),
        **changes,
    }
    values.setdefault("command", ("python", "train.py"))
    return Member(role=role, index=index, nproc=nproc, node=f"n{index}", **values)


def gang(*members: Member) -> Gang:
    return Gang("a1b2", "otter", 1, members)


def variables(framework: str, found: Gang) -> dict[str, dict[str, str]]:
    """By `role-index-local_rank`, without the neutral ones."""
    return {
        f"{told['role']}-{told['index']}-{local}": {
            name: value for name, value in rank["env"].items() if not name.startswith("WINDLASS_")
        }
        for answer in registry.rendezvous(framework, found).values()
        for told in answer["members"]
        for local, rank in enumerate(told["ranks"])
    }


def config(environment: dict[str, str]) -> Any:
    return json.loads(environment["TF_CONFIG"])


def probes(framework: str, found: Gang) -> list[Any]:
    answer = next(iter(registry.rendezvous(framework, found).values()))
    return list(answer["probes"])


TWO_WORKERS = gang(member("worker", 0), member("worker", 1))
PARAMETER_SERVER = gang(
    member("ps", 0), member("worker", 1), member("worker", 0), member("chief", 0)
)
CLUSTER = {
    "chief": ["10.0.0.1:2000"],
    "worker": ["10.0.0.1:3000", "10.0.0.2:3010"],
    "ps": ["10.0.0.1:4000"],
}


def test_workers_alone_get_exactly_what_multi_worker_mirrored_reads() -> None:
    found = variables("tensorflow", TWO_WORKERS)["worker-1-0"]
    cluster = {"worker": ["10.0.0.1:3000", "10.0.0.2:3010"]}
    assert config(found) == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    del found["TF_CONFIG"]
    assert json.loads(found.pop("TF_CLUSTER_DEF")) == cluster
    assert json.loads(found.pop("CLUSTER_SPEC")) == cluster
    assert found == {
        "TF_GRPC_REUSE_PORT": "true",
        "TF_ROLE": "worker",
        "TF_INDEX": "1",
        "JOB_NAME": "worker",
        "TASK_INDEX": "1",
        "TASK_NUM": "2",
    }


def test_every_role_of_a_parameter_server_job_sees_one_cluster() -> None:
    found = variables("tensorflow", PARAMETER_SERVER)
    assert {name: config(each)["task"] for name, each in found.items()} == {
        "chief-0-0": {"type": "chief", "index": 0},
        "worker-0-0": {"type": "worker", "index": 0},
        "worker-1-0": {"type": "worker", "index": 1},
        "ps-0-0": {"type": "ps", "index": 0},
    }
    assert all(config(each)["cluster"] == CLUSTER for each in found.values())
    assert {each["TASK_NUM"] for each in found.values()} == {"3"}, "a ps is not waited for"


def test_only_the_evaluator_sees_the_evaluator() -> None:
    found = variables("tensorflow", gang(*PARAMETER_SERVER.members, member("evaluator", 0)))
    own = config(found.pop("evaluator-0-0"))
    assert own["cluster"] == {**CLUSTER, "evaluator": ["10.0.0.1:5000"]}
    assert own["task"] == {"type": "evaluator", "index": 0}
    assert all(config(each)["cluster"] == CLUSTER for each in found.values())


@pytest.mark.parametrize("framework", ["tensorflow", "tensorflow1", "keras"])
@pytest.mark.parametrize("role", ["worker", "chief"])
def test_a_single_process_is_told_nothing(framework: str, role: str) -> None:
    assert variables(framework, gang(member(role, 0)))[f"{role}-0-0"] == {}


def test_several_processes_of_a_worker_are_counted_through() -> None:
    found = variables("tensorflow", gang(member("worker", 0, 2), member("worker", 1, 2)))
    assert [config(each)["task"]["index"] for each in found.values()] == [0, 1, 2, 3]
    assert config(found["worker-0-0"])["cluster"] == {
        "worker": ["10.0.0.1:3000", "10.0.0.1:3001", "10.0.0.2:3010", "10.0.0.2:3011"]
    }


def test_one_process_has_all_gpus_of_its_member_and_only_shared_ones_grow() -> None:
    alone = variables("tensorflow", gang(member("chief", 0, 4, gpus=4)))
    assert alone == {"chief-0-0": {}}, "a single process, which spreads by itself"
    dealt = variables("tensorflow", gang(member("worker", 0, 2, gpus=4)))
    assert len(dealt) == 2
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in dealt["worker-0-0"]
    shared = variables("tensorflow", gang(member("worker", 0, 2, gpus=1)))
    assert shared["worker-0-1"]["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_legacy_keras_is_looked_for_where_keras_3_cannot_work() -> None:
    asked = probes("tensorflow", TWO_WORKERS)
    assert [(each["module"], each["env"]) for each in asked] == [
        ("tf_keras", {"TF_USE_LEGACY_KERAS": "1"})
    ]
    assert "pip install tf_keras" in asked[0]["missing"]
    assert probes("tensorflow", gang(member("worker", 0))) == []
    assert probes("keras", TWO_WORKERS) == []


def test_tensorflow1_adds_its_hook_and_the_old_field_of_tf_config() -> None:
    answer = registry.rendezvous("tensorflow1", TWO_WORKERS)["n0"]
    assert answer["hooks"] == ["tensorflow1"]
    assert config(answer["members"][0]["ranks"][0]["env"])["environment"] == "cloud"
    assert probes("tensorflow1", gang(member("worker", 0))), "also for one process"
    assert registry.rendezvous("tensorflow", TWO_WORKERS)["n0"]["hooks"] == []


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"trainer": 2}, "known: chief, master, worker, ps, evaluator"),
        ({"chief": 2, "worker": 1}, "chief: there can be only one, 2 were asked for"),
        ({"chief": 1, "master": 1}, "two names of one role"),
        ({"evaluator": 2, "chief": 1}, "evaluator: there can be only one"),
        ({"ps": 2}, "nobody trains"),
        ({"evaluator": 1}, "nobody trains"),
        ({"ps": 1, "worker": 2}, "needs a chief"),
    ],
)
def test_a_gang_that_cannot_work_is_refused_in_words(counts: dict[str, int], words: str) -> None:
    (found,) = registry.contract("tensorflow").problems(counts)
    assert words in found


@pytest.mark.parametrize(
    ("framework", "counts", "rules"),
    [
        ("tensorflow", {"worker": 2}, {"worker": "all"}),
        (
            "tensorflow",
            {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
            {"chief": "all", "worker": "never", "ps": "never", "evaluator": "never"},
        ),
        ("tensorflow", {"master": 1, "ps": 1}, {"master": "all", "ps": "never"}),
        ("tensorflow1", {"worker": 2, "ps": 1}, {"worker": "all", "ps": "never"}),
        ("keras", {"worker": 2}, {"worker": "all"}),
    ],
)
def test_who_decides_the_end(
    framework: str, counts: dict[str, int], rules: dict[str, str]
) -> None:
    contract = registry.contract(framework)
    assert contract.problems(counts) == []
    assert contract.finish(counts) == rules


def test_keras_gets_what_each_of_its_backends_reads() -> None:
    found = variables("keras", TWO_WORKERS)["worker-1-0"]
    wanted = {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "3000",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:3000",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": "10.0.0.1:3000,10.0.0.2:3010",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
        "KERAS_DISTRIBUTION_PROCESS_ID": "1",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert config(found)["task"] == {"type": "worker", "index": 1}
    assert "KERAS_BACKEND" not in found, "the user's choice"


def test_keras_below_torchrun_gets_the_flags_of_torchrun_alone() -> None:
    command = ("torchrun", "train.py")
    found = gang(member("worker", 0, 2, command=command), member("worker", 1, 2, command=command))
    told = variables("keras", found)
    assert set(told) == {"worker-0-0", "worker-1-0"}
    assert told["worker-1-0"]["PET_NODE_RANK"] == "1"
    assert "RANK" not in told["worker-1-0"]


def test_keras_sends_parameter_servers_to_tensorflow() -> None:
    words = " ".join(registry.contract("keras").problems({"chief": 1, "worker": 2, "ps": 1}))
    assert "known: chief, worker" in words
    assert "framework tensorflow" in words


def test_a_user_may_not_set_what_the_launch_sets() -> None:
    mine = [
        "TF_CONFIG",
        "KERAS_BACKEND",
        "TF_USE_LEGACY_KERAS",
        "RANK",
        "TF_FORCE_GPU_ALLOW_GROWTH",
    ]
    assert registry.refused("tensorflow", mine) == ["TF_CONFIG"]
    assert registry.refused("keras", mine) == ["RANK", "TF_CONFIG"]
