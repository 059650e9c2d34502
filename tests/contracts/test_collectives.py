"""The contracts of the frameworks that find their peers by variables, exactly."""

from __future__ import annotations

import json

import pytest

from windlass.contracts import registry
from windlass.contracts.base import Gang, Member
from windlass.job import collective


def member(role: str, index: int, nproc: int = 1, node: str = "n0", **changes: object) -> Member:
    values: dict[str, object] = {
        "host": {"n0": "10.0.0.1", "n1": "10.0.0.2"}[node],
        "ports": tuple(1000 + 100 * index + each for each in range(nproc)),
        "command": ("python", "train.py"),
        **changes,
    }
    return Member(role=role, index=index, nproc=nproc, node=node, **values)  # type: ignore[arg-type]


def gang(*members: Member, **changes: object) -> Gang:
    return Gang("a1b2", "otter", 3, members, **changes)  # type: ignore[arg-type]


def ranks(framework: str, found: Gang) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """By `role-index-local_rank`: what the contract adds to its environment, and its files."""
    return {
        f"{told['role']}-{told['index']}-{local}": (
            {k: v for k, v in rank["env"].items() if not k.startswith("WINDLASS_")},
            {k: v for k, v in rank["files"].items() if k != "hostfile"},
        )
        for answer in registry.rendezvous(framework, found).values()
        for told in answer["members"]
        for local, rank in enumerate(told["ranks"])
    }


def environment(framework: str, found: Gang, name: str) -> dict[str, str]:
    return ranks(framework, found)[name][0]


TWO_NODES = gang(member("worker", 0, 2), member("worker", 1, 2, node="n1"))


def test_an_xgboost_rank_is_told_of_the_tracker_and_of_itself() -> None:
    assert environment("xgboost", TWO_NODES, "worker-1-0") == {
        "DMLC_TRACKER_URI": "10.0.0.1",
        "DMLC_TRACKER_PORT": "1000",
        "DMLC_TASK_ID": "2",
        "DMLC_NUM_WORKER": "4",
        "DMLC_ROLE": "worker",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1000",
        "WORLD_SIZE": "4",
        "RANK": "2",
    }


def test_xgboost_task_ids_sort_as_text_as_they_do_as_numbers() -> None:
    found = ranks("xgboost", gang(*(member("worker", each) for each in range(12))))
    ids = [found[f"worker-{each}-0"][0]["DMLC_TASK_ID"] for each in range(12)]
    assert ids == sorted(ids) and ids[2] == "02"


def test_a_master_is_rank_0() -> None:
    found = gang(member("worker", 0, node="n1"), member("master", 0, ports=(7,)))
    for framework in ("xgboost", "lightgbm"):
        master = environment(framework, found, "master-0-0")
        assert (master["RANK"], master["MASTER_ADDR"], master["MASTER_PORT"]) == (
            "0",
            "10.0.0.1",
            "7",
        )
        assert environment(framework, found, "worker-0-0")["RANK"] == "1"


def test_a_lightgbm_rank_finds_all_machines_and_its_own_port() -> None:
    environment, files = ranks("lightgbm", TWO_NODES)["worker-1-1"]
    assert environment == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1000",
        "WORKER_ADDRS": "10.0.0.1,10.0.0.2,10.0.0.2",
        "WORKER_PORT": "1101",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LIGHTGBM_MACHINES": "10.0.0.1:1000,10.0.0.1:1001,10.0.0.2:1100,10.0.0.2:1101",
        "LIGHTGBM_MACHINE_LIST": "@files@/lightGBMlist.txt",
        "LIGHTGBM_NUM_MACHINE": "4",
        "LIGHTGBM_LOCAL_LISTEN_PORT": "1101",
    }
    assert files == {
        "lightGBMlist.txt": "10.0.0.1 1000\n10.0.0.1 1001\n10.0.0.2 1100\n10.0.0.2 1101\n"
    }
    assert collective.lightgbm_params(environment) == {
        "machines": environment["LIGHTGBM_MACHINES"],
        "num_machines": 4,
        "local_listen_port": 1101,
        "tree_learner": "data",
    }


def test_the_lightgbm_parameters_of_one_process_are_none() -> None:
    alone = environment("lightgbm", gang(member("worker", 0)), "worker-0-0")
    assert collective.lightgbm_params(alone) == {}
    assert collective.lightgbm_params({}) == {}


def test_a_jax_process_is_told_of_the_coordinator_in_both_spellings() -> None:
    assert environment("jax", TWO_NODES, "worker-1-1") == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1000",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
        "COORDINATOR_ADDRESS": "10.0.0.1",
        "COORDINATOR_PORT": "1000",
        "NUM_PROCESSES": "4",
        "PROCESS_ID": "3",
    }


def test_a_proxy_of_the_job_does_not_come_between_jax_processes() -> None:
    found = gang(
        member("worker", 0),
        member("worker", 1, node="n1"),
        job_variables=frozenset({"HTTP_PROXY"}),
    )
    assert environment("jax", found, "worker-0-0")["no_grpc_proxy"] == "10.0.0.1,10.0.0.2"


def test_a_paddle_trainer_is_told_what_the_launcher_would_say() -> None:
    assert environment("paddle", TWO_NODES, "worker-1-0") == {
        "PADDLE_MASTER": "10.0.0.1:1000",
        "PADDLE_NNODES": "2",
        "PADDLE_GLOBAL_RANK": "2",
        "PADDLE_GLOBAL_SIZE": "4",
        "PADDLE_LOCAL_RANK": "0",
        "PADDLE_LOCAL_SIZE": "2",
        "PADDLE_TRAINER_ID": "2",
        "PADDLE_TRAINERS_NUM": "4",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1000,10.0.0.1:1001,10.0.0.2:1100,10.0.0.2:1101",
        "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:1100",
        "PADDLE_RANK_IN_NODE": "0",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }
    gpu = environment("paddle", gang(member("worker", 0, gpus=1)), "worker-0-0")
    assert gpu["FLAGS_selected_gpus"] == "0" and "PADDLE_DISTRI_BACKEND" not in gpu


@pytest.mark.parametrize(
    "command", [("python", "-m", "paddle.distributed.launch", "t.py"), ("fleetrun", "t.py")]
)
def test_paddles_launcher_is_a_node_and_not_a_trainer(command: tuple[str, ...]) -> None:
    found = gang(
        member("worker", 0, 2, command=command), member("worker", 1, 2, node="n1", command=command)
    )
    everyone = ranks("paddle", found)
    assert set(everyone) == {"worker-0-0", "worker-1-0"}
    assert everyone["worker-1-0"][0] == {
        "PADDLE_MASTER": "10.0.0.1:1000",
        "PADDLE_NNODES": "2",
        "PADDLE_NPROC_PER_NODE": "2",
        "PADDLE_JOB_ID": "a1b2-3",
        "PADDLE_RANK": "1",
        "POD_IP": "10.0.0.2",
        "PADDLE_LOG_DIR": "@files@/log",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


def test_paddle_with_servers_is_a_parameter_server_job() -> None:
    found = gang(member("server", 0), member("worker", 0, 2), member("worker", 1, node="n1"))
    assert environment("paddle", found, "server-0-0") == {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_ROLE": "PSERVER",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:1000",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1000,10.0.0.1:1001,10.0.0.2:1100",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_CURRENT_ENDPOINT": "10.0.0.1:1000",
        "PADDLE_PORT": "1000",
        "POD_IP": "10.0.0.1",
    }
    trainer = environment("paddle", found, "worker-1-0")
    assert (trainer["TRAINING_ROLE"], trainer["PADDLE_TRAINER_ID"]) == ("TRAINER", "2")


MXNET = gang(
    member("scheduler", 0, ports=(9091,)),
    member("server", 0, node="n1"),
    member("worker", 0, 2),
    member("worker", 1, node="n1"),
)


def test_every_mxnet_process_knows_its_role_and_the_scheduler() -> None:
    found = environment("mxnet", MXNET, "worker-1-0")
    config = json.loads(found.pop("MX_CONFIG"))
    assert found == {
        "DMLC_ROLE": "worker",
        "DMLC_PS_ROOT_URI": "10.0.0.1",
        "DMLC_PS_ROOT_PORT": "9091",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "3",
        "DMLC_WORKER_ID": "2",
        "DMLC_NODE_HOST": "10.0.0.2",
    }
    assert config == {
        "cluster": {
            "scheduler": [{"url": "10.0.0.1", "port": 9091}],
            "server": [{"url": "10.0.0.2", "port": 1000}],
            "worker": [
                {"url": "10.0.0.1", "port": 1000},
                {"url": "10.0.0.1", "port": 1001},
                {"url": "10.0.0.2", "port": 1100},
            ],
        },
        "labels": {"scheduler": "", "server": "", "worker": ""},
        "task": {"type": "worker", "index": 2},
    }
    assert environment("mxnet", MXNET, "server-0-0")["DMLC_SERVER_ID"] == "0"
    assert "DMLC_SERVER_ID" not in environment("mxnet", MXNET, "scheduler-0-0")


def test_a_single_mxnet_worker_is_a_plain_script() -> None:
    assert environment("mxnet", gang(member("worker", 0)), "worker-0-0") == {}


def test_mxnet_servers_and_scheduler_end_with_the_workers() -> None:
    counts = {"scheduler": 1, "server": 2, "worker": 2}
    assert registry.contract("mxnet").finish(counts) == {
        "scheduler": "never",
        "server": "never",
        "worker": "all",
    }


def test_scikit_learn_keeps_to_its_cpus() -> None:
    threads = environment("sklearn", gang(member("worker", 0, 2, cpus=5.0)), "worker-0-1")
    assert threads == {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "NUMEXPR_NUM_THREADS": "2",
        "LOKY_MAX_CPU_COUNT": "2",
    }
    assert environment("sklearn", gang(member("worker", 0)), "worker-0-0") == {}


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        (
            "spark",
            {
                "SPARK_LOCAL_IP": "10.0.0.1",
                "SPARK_LOCAL_DIRS": "@files@/spark",
                "PYSPARK_PYTHON": "python3",
                "PYSPARK_DRIVER_PYTHON": "python3",
            },
        ),
        ("caffe", {"GLOG_logtostderr": "1"}),
        ("chainer", {"CUPY_CACHE_DIR": "@files@/cupy"}),
        ("cntk", {}),
        ("theano", {"THEANO_FLAGS": "base_compiledir=@files@/theano"}),
    ],
)
def test_a_plain_command_gets_what_its_manual_asks_for(
    framework: str, expected: dict[str, str]
) -> None:
    assert environment(framework, gang(member("worker", 0)), "worker-0-0") == expected


@pytest.mark.parametrize(
    ("framework", "counts", "words"),
    [
        ("xgboost", {"worker": 1, "ps": 1}, "no role 'ps'; known: master, worker"),
        ("xgboost", {"worker": 1, "master": 2}, "one master, found 2"),
        ("lightgbm", {"chief": 1}, "no role 'chief'; known: master, worker"),
        ("jax", {"worker": 2, "master": 1}, "no role 'master'; known: worker"),
        ("paddle", {"ps": 1, "worker": 1}, "no role 'ps'; known: worker, server"),
        ("paddle", {"server": 1}, "without a worker"),
        ("mxnet", {"worker": 2}, "needs the role scheduler"),
        ("mxnet", {"worker": 2, "scheduler": 1}, "needs the role server"),
        ("mxnet", {"server": 1, "scheduler": 1}, "needs the role worker"),
        ("mxnet", {"server": 1, "scheduler": 2, "worker": 1}, "one scheduler, found 2"),
        ("mxnet", {"ps": 1, "scheduler": 1, "worker": 1}, "known: scheduler, server, worker"),
        ("spark", {"driver": 1, "worker": 2}, "one driver, found 3 members"),
    ],
)
def test_a_wrong_gang_is_told_what_would_be_right(
    framework: str, counts: dict[str, int], words: str
) -> None:
    assert words in "; ".join(registry.contract(framework).problems(counts))


@pytest.mark.parametrize(
    ("framework", "counts"),
    [
        ("xgboost", {"worker": 3}),
        ("xgboost", {"master": 1, "worker": 1}),
        ("jax", {"worker": 2}),
        ("paddle", {"worker": 2, "server": 2}),
        ("mxnet", {"worker": 1}),
        ("mxnet", {"worker": 2, "server": 1, "scheduler": 1}),
        ("spark", {"worker": 1}),
        ("sklearn", {"anything": 3}),
        ("theano", {"worker": 2}),
    ],
)
def test_a_right_gang_has_no_problems(framework: str, counts: dict[str, int]) -> None:
    assert registry.contract(framework).problems(counts) == []


@pytest.mark.parametrize(
    ("framework", "roles", "command", "words"),
    [
        ("pytorch", {"worker": 2}, ("deepspeed", "t.py"), "deepspeed starts ranks"),
        ("pytorch", {"worker": 2}, ("/x/accelerate", "launch", "t.py"), "over ssh"),
        ("pytorch", {"worker": 1}, ("accelerate", "launch", "t.py"), ""),
        ("pytorch", {"worker": 2}, ("torchrun", "t.py"), ""),
        ("paddle", {"worker": 2, "server": 1}, ("fleetrun", "t.py"), "by itself"),
        ("paddle", {"worker": 2}, ("fleetrun", "t.py"), ""),
    ],
)
def test_a_launcher_that_cannot_work_here_is_refused(
    framework: str, roles: dict[str, int], command: tuple[str, ...], words: str
) -> None:
    commands = {role: command for role in roles}
    found = registry.contract(framework).command_problems(roles, commands)
    assert (words in "; ".join(found)) if words else found == []


def test_ps_lite_never_finds_a_port_of_the_users() -> None:
    assert registry.refused("mxnet", ["PORT", "PS_VERBOSE"]) == ["PORT"]


@pytest.mark.parametrize("framework", registry.BUILT_IN)
def test_a_setting_may_be_made_by_the_job(framework: str) -> None:
    contract = registry.contract(framework)
    assert not contract.settings() & contract.reserved()
