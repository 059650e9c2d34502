"""Golden environments of Horovod and MPI; both start ranks beyond one member."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.contracts import registry
from windlass.contracts.base import Gang, Member
from windlass.contracts.horovod import HorovodContract
from windlass.contracts.mpi import MpiContract


def member(role: str, index: int, nproc: int = 1, **changes: Any) -> Member:
    values: dict[str, Any] = {
        "node": f"n{index}",
        "host": f"10.0.0.{index + 1}",
        "ports": tuple(range(1000, 1000 + nproc)),
        "command": ("mpirun", "python", "train.py"),
        "ifname": "eth0",
        "service_port": 7000 + index,
        **changes,
    }
    return Member(role=role, index=index, nproc=nproc, **values)


def told(framework: str, *members: Member) -> dict[str, dict[str, Any]]:
    """By `role-index-local_rank`, what the worker is told of that process."""
    answers = registry.rendezvous(framework, Gang("a1b2", "otter", 3, members))
    return {
        f"{each['role']}-{each['index']}-{local}": rank
        for answer in answers.values()
        for each in answer["members"]
        for local, rank in enumerate(each["ranks"])
    }


def own(rank: dict[str, Any]) -> dict[str, str]:
    return {name: text for name, text in rank["env"].items() if not name.startswith("WINDLASS_")}


def test_a_horovod_rank_gets_exactly_this() -> None:
    found = told("horovod", member("worker", 0, 2), member("worker", 1, 1), member("worker", 2, 2))
    assert own(found["worker-2-1"]) == {
        "HOROVOD_HOSTNAME": "worker-2",
        "HOROVOD_RANK": "4",
        "HOROVOD_SIZE": "5",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        # Of those that have a local rank 1: worker-0 and worker-2.
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "7000",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0",
    }
    ranks = {int(rank["env"]["HOROVOD_RANK"]) for rank in found.values()}
    assert ranks == set(range(5))


def test_the_store_of_horovod_knows_the_size_of_each_scope() -> None:
    found = told("horovod", member("worker", 0, 2), member("worker", 1, 1))
    assert json.loads(found["worker-0-0"]["files"]["horovod-scopes.json"]) == {
        "global": 3,
        "local_worker-0": 2,
        "local_worker-1": 1,
        "cross_0": 2,
        "cross_1": 1,
    }
    assert "horovod-scopes.json" not in found["worker-0-1"]["files"]


def test_worker_0_launches_and_the_others_hold_an_agent() -> None:
    found = told("mpi", member("worker", 0, 2), member("worker", 1, 4))
    assert set(found) == {"worker-0-0", "worker-1-0"}, "one process for each member"
    launcher, other = found["worker-0-0"], found["worker-1-0"]
    assert own(launcher) == {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": "@files@/rsh",
        "OMPI_MCA_orte_default_hostfile": "@files@/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_plm_rsh_num_concurrent": "128",
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "HYDRA_HOST_FILE": "@files@/hostfile.hydra",
        "HYDRA_ENV": "none",
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": "@files@/rsh",
        "HYDRA_IFACE": "eth0",
        "I_MPI_HYDRA_HOST_FILE": "@files@/hostfile.hydra",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "@files@/rsh",
        "I_MPI_HYDRA_IFACE": "eth0",
    }
    assert launcher["files"]["hostfile"] == "localhost slots=2\nworker-1 slots=4\n"
    assert launcher["files"]["hostfile.hydra"] == "localhost:2\nworker-1:4\n"
    assert json.loads(launcher["files"]["agent-hosts.json"]) == {"worker-1": ["10.0.0.2", 7001]}
    assert "instead" not in launcher and "prefix" not in launcher
    assert own(other) == {
        "K_MPI_JOB_ROLE": "worker",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    assert other["instead"] == "mpi-agent"


def test_a_launcher_of_its_own_holds_no_rank_and_sees_no_device() -> None:
    launcher = member("launcher", 0, node="n1", host="10.0.0.2", ifname="eth1")
    found = told("mpi", launcher, member("worker", 0, 2), member("worker", 1, 2))
    environment = own(found["launcher-0-0"])
    assert found["launcher-0-0"]["files"]["hostfile"] == "worker-0 slots=2\nworker-1 slots=2\n"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == ""
    assert environment["I_MPI_PERHOST"] == "2"
    assert "OMPI_MCA_btl_tcp_if_include" not in environment, "the interfaces differ"
    assert {name: rank.get("instead") for name, rank in found.items()} == {
        "launcher-0-0": None,
        "worker-0-0": "mpi-agent",
        "worker-1-0": "mpi-agent",
    }
    # worker-1 shares its machine with the launcher, worker-0 has one to itself.
    assert "OMPI_MCA_btl_vader_backing_directory" not in own(found["worker-0-0"])
    assert own(found["worker-1-0"])["OMPI_MCA_btl_vader_backing_directory"] == "@files@"


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("train.py", ["mpirun"]),
        ("python train.py", ["mpirun"]),
        ("/opt/venv/bin/python3.11 -u train.py", ["mpirun"]),
        ("mpirun -np 2 python train.py", None),
        ("mpiexec.hydra ./a.out", None),
        ("bash run.sh", None),
    ],
)
def test_a_python_command_is_put_behind_mpirun(command: str, prefix: list[str] | None) -> None:
    words = tuple(command.split())
    found = told("mpi", member("worker", 0, command=words), member("worker", 1, command=words))
    assert found["worker-0-0"].get("prefix") == prefix
    assert "prefix" not in found["worker-1-0"]
    launcher = member("launcher", 0, command=words)
    found = told("mpi", launcher, member("worker", 0, command=words))
    assert "prefix" not in found["launcher-0-0"], "who has a launcher says himself what it runs"


def test_who_launches_decides_the_end() -> None:
    contract = MpiContract()
    assert contract.finish({"worker": 3}) == {"worker": "first"}
    assert contract.finish({"launcher": 1, "worker": 3}) == {"launcher": "all", "worker": "never"}


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"worker": 2}, []),
        ({"worker": 2, "launcher": 1}, []),
        ({"worker": 2, "launcher": 2}, ["one launcher (found 2)"]),
        ({"launcher": 1}, ["needs workers"]),
        ({"worker": 1, "ps": 1}, ["no role 'ps'; known: launcher, worker"]),
    ],
)
def test_gangs_that_mpi_cannot_start(counts: dict[str, int], words: list[str]) -> None:
    found = MpiContract().problems(counts)
    assert len(found) == len(words)
    assert all(word in problem for word, problem in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("command", "wrong"),
    [("horovodrun -np 2 python t.py", True), ("/opt/bin/horovodrun t.py", True), ("t.py", False)],
)
def test_horovodrun_inside_a_rank_is_refused(command: str, wrong: bool) -> None:
    found = HorovodContract().command_problems({"worker": 2}, {"worker": command.split()})
    assert bool(found) is wrong


def test_horovod_knows_workers_only() -> None:
    assert HorovodContract().problems({"worker": 4}) == []
    assert "known: worker" in HorovodContract().problems({"worker": 1, "chief": 1})[0]


@pytest.mark.parametrize("framework", ["horovod", "mpi"])
def test_a_user_may_not_set_what_we_set(framework: str) -> None:
    members = [member("worker", 0, 2, host="h"), member("worker", 1, 2, host="h")]
    if framework == "mpi":
        members.append(member("launcher", 0))
    for rank in told(framework, *members).values():
        names = set(rank["env"]) - registry.contract(framework).settings()
        assert set(registry.refused(framework, names)) == names


def test_interfaces_are_a_default_that_a_user_may_change() -> None:
    for framework, name in (("horovod", "NCCL_SOCKET_IFNAME"), ("mpi", "HYDRA_IFACE")):
        assert registry.refused(framework, [name]) == []
        assert name in registry.contract(framework).settings()
