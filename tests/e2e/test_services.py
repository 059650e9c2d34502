"""What the workers run for a gang, through the real server: ports registered, told, reached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform

GREET = """
import os, time, urllib.error, urllib.request
own = os.environ
rank, size = int(own["HOROVOD_RANK"]), int(own["HOROVOD_SIZE"])
place = (own["HOROVOD_GLOO_RENDEZVOUS_ADDR"], own["HOROVOD_GLOO_RENDEZVOUS_PORT"])
store = "http://%s:%s/" % place
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def put(key):
    request = urllib.request.Request(store + "greet/" + key, own["WINDLASS_NODE_RANK"].encode())
    request.get_method = lambda: "PUT"
    opener.open(request).read()
def wait(key):
    while True:
        try:
            return opener.open(store + "greet/" + key).read().decode()
        except urllib.error.HTTPError as err:
            assert err.code == 404
            time.sleep(0.01)
put(str(rank))
print("nodes", [wait(str(each)) for each in range(size)])
if rank:
    put("left")
else:
    wait("left")
"""
# Its remote shell is all of MPI that this launcher uses.
CALL = """
"$OMPI_MCA_plm_rsh_agent" worker-1 'echo on node $WINDLASS_NODE_RANK; exit 4'
echo status $?
"""
APART = {"worker": {"count": 2, "gpus": 1}}


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("services") / "home"
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "1") as platform:
        yield platform


def test_horovod_ranks_of_two_nodes_meet_in_the_store_of_rank_0(two_nodes: Platform) -> None:
    job = two_nodes.submit([sys.executable, "-c", GREET], framework="horovod", roles=APART)
    over = two_nodes.wait(job)
    text = two_nodes.logs(job)
    assert over.state == "succeeded", f"{over.reason}\n{text}"
    assert text.count("nodes ['0', '1']") == 2


def test_the_launcher_of_mpi_reaches_the_other_node_and_its_end_is_the_end(
    two_nodes: Platform,
) -> None:
    job = two_nodes.submit(["sh", "-c", CALL], framework="mpi", roles=APART)
    over = two_nodes.wait(job)
    text = two_nodes.logs(job)
    assert over.state == "succeeded", f"{over.reason}\n{text}"
    assert "on node 1" in text and "status 4" in text


@pytest.mark.parametrize(
    ("framework", "roles", "word"),
    [
        ("mpi", {"launcher": {"count": 2}, "worker": {}}, "one launcher (found 2)"),
        ("mpi", {"worker": {}, "ps": {}}, "known: launcher, worker"),
        ("horovod", {"chief": {}, "worker": {}}, "known: worker"),
    ],
)
def test_a_gang_that_cannot_start_is_refused_at_submit(
    two_nodes: Platform, framework: str, roles: dict[str, dict[str, int]], word: str
) -> None:
    spec = {"run": ["true"], "framework": framework, "roles": roles}
    answer = two_nodes.call("POST", "/jobs", {"spec": spec}, headers={"Idempotency-Key": word})
    assert answer.status_code == 422
    assert word in answer.json()["error"]["message"]


def test_a_launch_variable_of_mpi_is_refused_at_submit(two_nodes: Platform) -> None:
    spec = {
        "run": ["mpirun", "true"],
        "framework": "mpi",
        "environment": {"vars": {"OMPI_MCA_plm_rsh_agent": "ssh"}},
    }
    answer = two_nodes.call("POST", "/jobs", {"spec": spec}, headers={"Idempotency-Key": "mpi-1"})
    assert "OMPI_MCA_plm_rsh_agent" in answer.json()["error"]["message"]


def test_the_files_of_an_agent_are_for_its_owner_alone(two_nodes: Platform) -> None:
    job = two_nodes.submit(["true"], framework="mpi", roles=APART)
    two_nodes.wait(job)
    keys = [path for folder in two_nodes.attempts(job) for path in _keys(folder)]
    assert len(keys) == 2 and len({path.read_text() for path in keys}) == 1
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    token = (two_nodes.attempts(job)[0] / "token").read_text()
    assert token.strip() not in keys[0].read_text()


def _keys(folder: Path) -> list[Path]:
    return list(folder.glob("files/*/agent.key"))
