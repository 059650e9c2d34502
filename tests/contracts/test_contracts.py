"""The contracts, by table: a gang goes in, each rank's environment comes out."""

from __future__ import annotations

import pytest

from windlass.contracts import launchers, registry
from windlass.contracts.base import Gang, Member
from windlass.contracts.pytorch import is_launcher


def member(role: str, index: int, nproc: int = 1, node: str = "n0", **changes: object) -> Member:
    values: dict[str, object] = {
        "host": {"n0": "10.0.0.1", "n1": "10.0.0.2"}[node],
        "ports": tuple(1000 + 100 * index + each for each in range(nproc)),
        "command": ("python", "train.py"),
        "ifname": "eth0",
        **changes,
    }
    return Member(role=role, index=index, nproc=nproc, node=node, **values)  # type: ignore[arg-type]


def gang(*members: Member, **changes: object) -> Gang:
    return Gang("a1b2", "otter", 3, members, **changes)  # type: ignore[arg-type]


def environments(framework: str, found: Gang) -> dict[str, dict[str, str]]:
    """By `role-index-local_rank`."""
    return {
        f"{told['role']}-{told['index']}-{local}": rank["env"]
        for answer in registry.rendezvous(framework, found).values()
        for told in answer["members"]
        for local, rank in enumerate(told["ranks"])
    }


def test_ranks_are_dealt_role_by_role_in_the_stated_order() -> None:
    found = gang(
        member("zebra", 0),
        member("ps", 0, node="n1"),
        member("worker", 1, 2, node="n1"),
        member("worker", 0, 2),
        member("chief", 0),
        member("ant", 0),
    )
    ranks = {
        name: int(env["WINDLASS_RANK"]) for name, env in environments("python", found).items()
    }
    assert sorted(ranks, key=lambda name: ranks[name]) == [
        "chief-0-0",
        "worker-0-0",
        "worker-0-1",
        "worker-1-0",
        "worker-1-1",
        "ps-0-0",
        "ant-0-0",
        "zebra-0-0",
    ]
    assert sorted(ranks.values()) == list(range(8))


def test_the_neutral_variables_tell_of_nodes_and_not_of_members() -> None:
    found = gang(
        member("worker", 0, 2, gpus=2),
        member("worker", 1, 2, gpus=2),
        member("worker", 2, node="n1"),
    )
    answers = registry.rendezvous("python", found)
    rank = answers["n1"]["members"][0]["ranks"][0]
    assert rank["env"] == {
        "WINDLASS_JOB_ID": "a1b2",
        "WINDLASS_JOB_NAME": "otter",
        "WINDLASS_ATTEMPT": "3",
        "WINDLASS_ROLE": "worker",
        "WINDLASS_ROLE_INDEX": "2",
        "WINDLASS_RANK": "4",
        "WINDLASS_WORLD_SIZE": "5",
        "WINDLASS_LOCAL_RANK": "0",
        "WINDLASS_NODE_RANK": "1",
        "WINDLASS_NUM_NODES": "2",
        "WINDLASS_GPUS_PER_NODE": "0",
        "WINDLASS_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "WINDLASS_HOSTFILE": "@files@/hostfile",
    }
    assert rank["files"] == {"hostfile": "10.0.0.1 slots=4\n10.0.0.2 slots=1\n"}
    assert answers["n0"]["members"][0]["ranks"][0]["env"]["WINDLASS_GPUS_PER_NODE"] == "4"
    assert answers["n0"]["nodes"] == 2
    assert answers["n0"]["finish"] == {"worker": "all"}


def torch_only(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("WINDLASS_")}


def test_a_torch_rank_gets_the_env_contract_exactly() -> None:
    found = gang(member("worker", 0, 2), member("worker", 1, 2, node="n1"))
    assert torch_only(environments("pytorch", found)["worker-1-1"]) == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1000",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "ROLE_NAME": "worker",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "a1b2-3",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "2",
        "LOCAL_SIZE": "2",
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
    }


def test_torchrun_gets_its_flags_and_no_plain_rank_variable() -> None:
    command = ("torchrun", "train.py")
    found = gang(
        member("worker", 0, 2, command=command), member("worker", 1, 2, node="n1", command=command)
    )
    everyone = environments("pytorch", found)
    assert set(everyone) == {"worker-0-0", "worker-1-0"}, "one process for each member"
    assert torch_only(everyone["worker-1-0"]) == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "1000",
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    assert everyone["worker-1-0"]["WINDLASS_RANK"] == "2"
    assert everyone["worker-1-0"]["WINDLASS_WORLD_SIZE"] == "4"


def test_elastic_torchrun_gets_a_range_of_nodes_and_a_rendezvous() -> None:
    members = [member("worker", each, command=("torchrun", "t.py")) for each in range(4)]
    found = gang(*members, minimum={"worker": 1})
    assert torch_only(environments("pytorch", found)["worker-2-0"]) == {
        "PET_NNODES": "1:4",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "10.0.0.1:1000",
        "PET_RDZV_ID": "a1b2-3",
        "PET_MAX_RESTARTS": "3",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
    }


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("torchrun train.py", True),
        ("/opt/venv/bin/torchrun --x train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("python3.11 -u -m torch.distributed.run train.py", True),
        ("python train.py -m torch.distributed.run", False),
        ("python -m mytrainer", False),
        ("python", False),
        ("train.py", False),
    ],
)
def test_torchrun_is_known_in_every_form(command: str, launcher: bool) -> None:
    assert is_launcher(command.split()) is launcher


def test_an_unknown_framework_lists_the_known_ones() -> None:
    with pytest.raises(registry.UnknownFramework, match="known: .*python, pytorch"):
        registry.contract("torch")


def test_launch_variables_cannot_be_set_by_a_user() -> None:
    names = ["RANK", "WINDLASS_ANYTHING", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PET_NNODES"]
    assert registry.refused("pytorch", names) == [
        "CUDA_VISIBLE_DEVICES",
        "PET_NNODES",
        "RANK",
        "WINDLASS_ANYTHING",
    ]
    assert registry.refused("python", ["RANK"]) == []
    assert "MASTER_ADDR" in registry.reserved("pytorch")


@pytest.mark.parametrize("framework", registry.names())
def test_every_variable_a_contract_sets_is_reserved_or_a_setting(framework: str) -> None:
    """What a job may not set is refused at submit; in what it may, the job's word counts."""
    commands = (("python", "t.py"), ("torchrun", "t.py"))
    settings = registry.contract(framework).settings()
    for command in commands:
        found = gang(member("worker", 0, command=command))
        names = set(environments(framework, found)["worker-0-0"]) - settings
        assert set(registry.refused(framework, names)) == names


def test_each_rank_of_a_gpu_member_is_told_its_device_for_accelerate() -> None:
    found = environments("pytorch", gang(member("worker", 0, 2, gpus=2)))
    assert found["worker-0-1"]["ACCELERATE_TORCH_DEVICE"] == "cuda:1"


@pytest.mark.parametrize("command", ["deepspeed t.py", "accelerate launch t.py"])
def test_a_launcher_of_one_node_is_one_process_that_is_no_rank(command: str) -> None:
    found = environments("pytorch", gang(member("worker", 0, 2, command=tuple(command.split()))))
    assert set(found) == {"worker-0-0"}
    assert set(torch_only(found["worker-0-0"])) == {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}


@pytest.mark.parametrize(
    ("framework", "variable", "value"),
    [
        ("pytorch", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("jax", "XLA_PYTHON_CLIENT_MEM_FRACTION", "0.23"),
        ("tensorflow", "TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    ],
)
def test_ranks_that_share_a_gpu_are_told_so(framework: str, variable: str, value: str) -> None:
    def environment(gpus: int) -> dict[str, str]:
        members = tuple(
            Member("worker", index, 4, "n", "10.0.0.1", (1, 2, 3, 4), ("python", "x"), gpus)
            for index in range(2)
        )
        answer = registry.rendezvous(framework, Gang("j", "name", 1, members))
        found: dict[str, str] = answer["n"]["members"][0]["ranks"][0]["env"]
        return found

    assert environment(gpus=1)[variable] == value
    assert variable not in environment(gpus=4)
    assert variable not in environment(gpus=0)


@pytest.mark.parametrize(
    ("members", "command", "words"),
    [
        (2, "torchrun --standalone t.py", "--standalone would win"),
        (2, "python -m torch.distributed.run --rdzv_id=7 t.py", "--rdzv_id=7 would win"),
        (2, "torchrun --nproc_per_node=2 t.py", ""),
        (1, "torchrun --standalone --nnodes=1 t.py", ""),
        (1, "torchrun --nnodes 2 t.py", "--nnodes 2, but this job has one member"),
        (1, "deepspeed --num_nodes 2 t.py", "--num_nodes 2, but"),
        (1, "torchrun t.py --nnodes 2", ""),
    ],
)
def test_a_launcher_that_would_wait_for_ever_is_refused_at_every_door(
    members: int, command: str, words: str
) -> None:
    found = launchers.problems(members, [command.split()])
    assert (words in "; ".join(found)) if words else found == []
