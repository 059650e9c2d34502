"""Ranks get their share of the cores, by table."""

from __future__ import annotations

import pytest

from windlass.contracts import registry, threads
from windlass.contracts.base import Gang, Member

NODE = {"node_cpus": 16.0, "node_cores": 16}


def member(index: int, nproc: int = 1, *, role: str = "worker", **changes: object) -> Member:
    values: dict[str, object] = {
        "node": f"n{index}", "host": "h", "command": ("python", "train.py"), **NODE, **changes,
    }  # fmt: skip
    ports = tuple(1000 + each for each in range(nproc))
    found = Member(role=role, index=index, nproc=nproc, ports=ports, **values)  # type: ignore[arg-type]
    return found if found.machine else Member(**{**vars(found), "machine": found.node})


def told(framework: str, *members: Member, own: tuple[str, ...] = ()) -> dict[str, dict[str, str]]:
    """By `role-index`, the thread variables of its first process."""
    gang = Gang("job", "name", 1, members, job_variables=frozenset(own))
    names = threads.names(registry.contract(framework))
    return {
        f"{each['role']}-{each['index']}": {
            name: value for name, value in each["ranks"][0]["env"].items() if name in names
        }
        for answer in registry.rendezvous(framework, gang).values()
        for each in answer["members"]
    }


def share(framework: str, *members: Member) -> str | None:
    return told(framework, *members)["worker-0"].get("OMP_NUM_THREADS")


@pytest.mark.parametrize("framework", sorted(registry.BUILT_IN))
def test_two_ranks_of_a_machine_halve_its_cores_in_every_framework(framework: str) -> None:
    found = told(framework, *(member(each, machine="m") for each in (0, 1)))
    contract = registry.contract(framework)
    assert found["worker-1"] == {name: "8" for name in threads.names(contract)}
    assert not set(found["worker-1"]) & contract.reserved(), "a user may set them"


@pytest.mark.parametrize("framework", sorted(registry.BUILT_IN))
def test_a_rank_alone_on_its_machine_keeps_all_cores(framework: str) -> None:
    assert set(map(str, told(framework, member(0), member(1)).values())) == {"{}"}


@pytest.mark.parametrize(
    ("expected", "members"),
    [
        ("4", [member(0, 4)]),
        ("1", [member(0, 32)]),
        ("5", [member(0, 3)]),
        # What was asked for is what a member has, alone or not.
        ("2", [member(0, 1, cpus=2.0)]),
        ("1", [member(0, 4, cpus=2.0), member(1, machine="n0")]),
        # A container sees the cores of its host and may use a few of them.
        ("3", [member(0, 1, node_cpus=3.5)]),
        ("1", [member(0, 2, node_cpus=3.5)]),
        # Whoever only directs takes none.
        (None, [member(0), member(0, role="scheduler")]),
        (None, [member(0, 4, node_cpus=0.0, node_cores=0)]),
    ],
)
def test_the_share_of_a_rank(expected: str | None, members: list[Member]) -> None:
    assert share("mxnet", *members) == expected


def test_the_ranks_that_a_launcher_starts_share_its_cores() -> None:
    torchrun = member(0, 4, command=("torchrun", "train.py"))
    assert share("pytorch", torchrun) == "4"


def test_one_tensorflow_process_over_several_gpus_keeps_the_cores_of_its_member() -> None:
    assert share("tensorflow", member(0, 4, gpus=4)) is None
    assert share("pytorch", member(0, 4, gpus=4)) == "4"


def test_a_job_that_sets_one_of_them_has_decided() -> None:
    found = told("pytorch", member(0, 4), own=("OMP_NUM_THREADS",))
    assert found == {"worker-0": {}}
