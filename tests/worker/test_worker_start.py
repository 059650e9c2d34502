"""What a rank finds when it starts: environment, code, devices, limits, resume."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from worker_lab import Lab, Worker, until

from windlass.worker import cpus as worker_cpus

PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def environment(worker: Worker, name: str = "worker-0-0.out") -> dict[str, str]:
    assert worker.end()["outcome"] == "succeeded", worker.words()
    found: dict[str, str] = json.loads(worker.logs(name))
    return found


def test_the_environment_of_a_plain_command_is_exactly_this(lab: Lab) -> None:
    worker = lab.worker(PRINT_ENVIRONMENT, vars={"OMP_NUM_THREADS": "1"})
    found = environment(worker.start())
    kept = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM"}
    kept |= {"LD_LIBRARY_PATH", "SSL_CERT_FILE"}
    found = {
        name: value
        for name, value in found.items()
        if name not in kept and not name.startswith("LC_")
    }
    directory = str(worker.directory)
    assert found == {
        "OMP_NUM_THREADS": "1",
        "WINDLASS_JOB_ID": "job",
        "WINDLASS_JOB_NAME": "name",
        "WINDLASS_PROJECT": "default",
        "WINDLASS_ATTEMPT": "1",
        "WINDLASS_ATTEMPT_ID": lab.attempt_id,
        "WINDLASS_ROLE": "worker",
        "WINDLASS_ROLE_INDEX": "0",
        "WINDLASS_RANK": "0",
        "WINDLASS_WORLD_SIZE": "1",
        "WINDLASS_LOCAL_RANK": "0",
        "WINDLASS_NODE_RANK": "0",
        "WINDLASS_NUM_NODES": "1",
        "WINDLASS_GPUS_PER_NODE": "0",
        "WINDLASS_NODE_IPS": "127.0.0.1",
        "WINDLASS_HOSTFILE": directory + "/files/0/hostfile",
        "WINDLASS_CHECKPOINT_DIR": str(lab.folder / "checkpoints"),
        "WINDLASS_CHECKPOINT_KEEP": "3",
        "WINDLASS_OUTPUT_DIR": directory + "/out",
        "WINDLASS_RUN_DIR": directory + "/run",
        "WINDLASS_URL": lab.plane.url,
        "WINDLASS_TOKEN": "track",
        "MLFLOW_TRACKING_URI": lab.plane.url + "/mlflow/default",
        "MLFLOW_TRACKING_TOKEN": "track",
        "MLFLOW_RUN_ID": "job",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": directory + "/debug/hook",
        "TMPDIR": found["TMPDIR"],
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert (worker.directory / "files/0/hostfile").read_text() == "127.0.0.1 slots=1\n"
    assert not os.path.exists(found["TMPDIR"]), "the private folder went with the attempt"
    assert len(found["TMPDIR"]) <= 70, "a Unix socket must fit below it"


def test_a_torch_rank_gets_the_env_contract_and_all_devices_of_its_member(lab: Lab) -> None:
    lab.plane.framework = "pytorch"
    member = {
        "role": "worker",
        "index": 0,
        "nproc": 2,
        "gpu_ids": ["3", "5"],
        "command": [sys.executable, "-c", PRINT_ENVIRONMENT],
    }
    worker = lab.worker("", members=[member]).start()
    found = environment(worker, "worker-0-1.out")
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"]) == ("1", "2", "1")
    assert found["CUDA_VISIBLE_DEVICES"] == "3,5"
    port = lab.plane.wait_for("register")["members"][0]["ports"][0]
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("127.0.0.1", str(port))


def test_ranks_share_the_cores_of_their_node(lab: Lab) -> None:
    """Each that takes all of them fights with the others: 15 times slower than torchrun."""
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-c", PRINT_ENVIRONMENT]
    member = {"role": "worker", "index": 0, "nproc": 4, "command": command}
    found = environment(lab.worker("", members=[member]).start(), "worker-0-3.out")
    assert found["OMP_NUM_THREADS"] == found["MKL_NUM_THREADS"] == str(max(1, cores // 4))


@pytest.mark.parametrize(
    ("group", "files", "cpus"),
    [
        ("0::/pod/box\n", {"pod/cpu.max": "150000 100000", "pod/box/cpu.max": "max 100000"}, 1.5),
        (
            "3:cpu,cpuacct:/box\n0::/\n",
            {
                "cpu,cpuacct/box/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/box/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        ("0::/\n", {}, None),
    ],
)
def test_a_container_counts_the_cpus_of_its_quota(
    tmp_path: Path, group: str, files: dict[str, str], cpus: float | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    cores = len(os.sched_getaffinity(0))
    expected = float(cores) if cpus is None else min(cpus, cores)
    assert worker_cpus.look(str(tmp_path)) == {"cpus": expected, "cores": cores}


def test_the_devices_of_a_plain_member_are_dealt_over_its_ranks(lab: Lab) -> None:
    member = {
        "role": "worker",
        "index": 0,
        "nproc": 2,
        "gpu_ids": ["3", "5"],
        "command": [sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"],
    }
    worker = lab.worker("", members=[member]).start()
    worker.end()
    assert (worker.logs("worker-0-0.out"), worker.logs("worker-0-1.out")) == (b"3\n", b"5\n")


def blob(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def bundle(files: list[dict[str, Any]]) -> tuple[str, bytes]:
    text = json.dumps(
        sorted(files, key=lambda entry: str(entry["path"])), sort_keys=True, separators=(",", ":")
    ).encode()
    return blob(text), text


SCRIPT = b"import helper.words, os; print(helper.words.hello, os.getcwd())"
HELPER = b"hello = 'from the bundle'"


def files() -> list[dict[str, Any]]:
    return [
        {"path": "train.py", "digest": blob(SCRIPT), "size": len(SCRIPT), "mode": 0o644},
        {"path": "helper/words.py", "digest": blob(HELPER), "size": len(HELPER), "mode": 0o644},
    ]


def test_a_script_of_the_bundle_runs_with_the_python_of_the_job(lab: Lab) -> None:
    """From the server's own folder: not a call is made for it."""
    digest, manifest = bundle(files())
    for content in (manifest, SCRIPT, HELPER):
        path = lab.folder / "blobs" / blob(content)[:2] / blob(content)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    worker = lab.worker(
        ["train.py"], bundle=digest, blob_dir=str(lab.folder / "blobs"), python=sys.executable
    ).start()
    assert worker.end()["outcome"] == "succeeded"
    assert worker.logs() == f"from the bundle {worker.directory}/work\n".encode()
    assert not [call for call in lab.plane.calls if call[1].startswith("b") and call[1] != "beat"]


def test_a_bundle_comes_over_http_once_and_then_from_the_cache(lab: Lab) -> None:
    digest, _ = bundle(files())
    lab.plane.manifest = files()
    lab.plane.blobs = {blob(SCRIPT): SCRIPT, blob(HELPER): HELPER}
    for node in ("n0", "n1"):
        lab.plane.registered.clear()
        worker = lab.worker(["python3", "train.py"], node=node, bundle=digest).start()
        assert worker.end()["outcome"] == "succeeded"
    assert len([call for call in lab.plane.calls if call[1].startswith("blobs/")]) == 2


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "a//b", "", "a\\b", "."])
def test_a_bundle_with_a_bad_name_is_refused(lab: Lab, path: str) -> None:
    bad = [{"path": path, "digest": blob(HELPER), "size": len(HELPER), "mode": 0o644}]
    digest, _ = bundle(bad)
    lab.plane.manifest, lab.plane.blobs = bad, {blob(HELPER): HELPER}
    worker = lab.worker("pass", bundle=digest).start()
    assert worker.end()["outcome"] == "refused"
    assert list(worker.directory.parent.glob("**/evil")) == []


def test_a_damaged_blob_is_refused(lab: Lab) -> None:
    digest, _ = bundle(files())
    lab.plane.manifest = files()
    lab.plane.blobs = {blob(SCRIPT): SCRIPT, blob(HELPER): b"x" * len(HELPER)}
    record = lab.worker("pass", bundle=digest).start().end()
    assert record["outcome"] == "refused" and "damaged" in record["reason"]


def memory_is_limited() -> bool:
    return os.access("/sys/fs/cgroup/memory", os.W_OK) and os.geteuid() == 0


@pytest.mark.skipif(not memory_is_limited(), reason="no writable memory cgroup")
def test_a_rank_over_its_memory_limit_is_an_oom_and_says_so(lab: Lab) -> None:
    member = {
        "role": "worker",
        "index": 0,
        "nproc": 1,
        "command": [sys.executable, "-c", "x = bytearray(500_000_000); print(len(x))"],
        "memory_bytes": 100_000_000,
    }
    worker = lab.worker("", members=[member]).start()
    record = worker.end()
    assert record["outcome"] == "oom", record
    assert record["ranks"][0]["oom"] and record["ranks"][0]["signal"] == 9
    assert "ran out of memory" in record["reason"]
    assert lab.plane.wait_for("register")["isolation"]["memory"] in ("v1", "v2")


def checkpoint(folder: Path, step: int, content: bytes, attempt: int = 1) -> dict[str, Any]:
    path = folder / f"step-{step:012d}-{attempt:06d}"
    path.mkdir(parents=True)
    (path / "model.bin").write_bytes(content)
    entry = {"path": "model.bin", "bytes": len(content), "digest": blob(content)}
    manifest = {"api": 1, "step": step, "files": [entry], "digest": f"d{step}"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return {"path": str(path), "step": step, "digest": f"d{step}"}


def test_a_bad_checkpoint_is_reported_and_the_one_before_it_is_used(lab: Lab) -> None:
    folder = lab.folder / "checkpoints"
    good = checkpoint(folder, 40, b"good")
    bad = checkpoint(folder, 50, b"good too")
    (Path(bad["path"]) / "model.bin").write_bytes(b"bit flip")
    (folder / ".tmp-1-60-abc").mkdir()
    lab.plane.resume_from = bad
    worker = lab.worker(PRINT_ENVIRONMENT, attempt=2).start()
    assert environment(worker)["WINDLASS_RESUME_FROM"] == good["path"]
    note = lab.plane.wait_for("beat", where=lambda body: bool(body["notes"]))["notes"][0]
    assert (note["kind"], note["path"]) == ("bad-checkpoint", bad["path"])
    offered = lab.plane.wait_for("register")["checkpoints"]
    assert [each["step"] for each in offered] == [50, 40]
    assert not (folder / ".tmp-1-60-abc").exists()


def test_spool_lines_are_shipped_in_order_and_once(lab: Lab) -> None:
    code = (
        "import json, os\n"
        "with open(os.environ['WINDLASS_RUN_DIR'] + '/spool-0.jsonl', 'a', buffering=1) as f:\n"
        "    for n in range(3000):\n"
        "        f.write(json.dumps({'kind': 'metric', 'step': n, 'pad': 'x' * 200}) + '\\n')\n"
        '    f.write(\'{"step": NaN, "bad": "\\\\ud800"}\\n\')\n'
        "    f.write('not json\\n')\n"
        "    f.write('{\"torn')\n"
    )
    worker = lab.worker(code).start()
    worker.end()
    shipped = [body for _, name, body in lab.plane.calls if name == "spool"]
    steps = [line["step"] for body in shipped for line in body["lines"]]
    assert steps == list(range(3000))
    assert len(shipped) > 1
    spool = (worker.directory / "run" / "spool-0.jsonl").read_bytes()
    assert shipped[0]["offset"] == 0
    assert shipped[-1]["end"] == spool.rindex(b"\n") + 1
    assert all(one["end"] == two["offset"] for one, two in itertools.pairwise(shipped))


def test_beats_tell_of_output_steps_and_ended_ranks(lab: Lab) -> None:
    code = (
        "import os, time\n"
        "if os.environ['WINDLASS_RANK'] == '1': raise SystemExit\n"
        "print('x' * 99)\n"
        "open(os.environ['WINDLASS_RUN_DIR'] + '/spool-0.jsonl', 'a').write('{\"step\": 7}\\n')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    worker = lab.worker(code, nproc=2).start()

    def told(body: Any) -> bool:
        first, second = body["ranks"]
        return bool(first["output_bytes"] == 100 and first["step"] == 7 and "exit" in second)

    beat = lab.plane.wait_for("beat", where=told)
    assert beat["ranks"][1]["exit"] == 0
    assert beat["ranks"][0]["rss_bytes"] > 1_000_000
    (worker.directory / "work" / "go").touch()
    worker.end()
    numbers = [body["seq"] for _, _, body in lab.plane.calls if body and "seq" in body]
    assert numbers == sorted(set(numbers))


def test_a_restarted_server_is_found_by_its_file(lab: Lab) -> None:
    server_file = lab.folder / "server.json"
    server_file.write_text(json.dumps({"url": lab.plane.url}))
    worker = lab.worker("pass", urls=["http://127.0.0.1:9"], server_file=str(server_file)).start()
    assert worker.end()["outcome"] == "succeeded"
    until(lambda: any(call[1] == "ended" for call in lab.plane.calls))


def test_a_setting_of_the_contract_that_the_job_makes_itself_is_the_jobs(lab: Lab) -> None:
    lab.plane.framework = "pytorch"
    theirs = {"NCCL_SOCKET_IFNAME": "mine0"}
    worker = lab.worker(PRINT_ENVIRONMENT, vars=theirs, ifname="lo").start()
    found = environment(worker, "worker-0-0.out")
    assert found["NCCL_SOCKET_IFNAME"] == "mine0", "the job's word"
    assert found["GLOO_SOCKET_IFNAME"] == "lo", "the contract's"


def test_a_port_is_held_for_a_framework_that_can_listen_on_it_all_the_same(lab: Lab) -> None:
    code = """
import os, socket
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
held = False
try:
    socket.socket().bind(place)
except OSError:
    held = True
with socket.create_server(place):
    print("held", held)
"""
    lab.plane.framework = "pytorch"
    worker = lab.worker(code).start()
    worker.end()
    assert worker.logs("worker-0-0.out") == b"held True\n"


def test_a_port_is_free_for_one_that_cannot(lab: Lab) -> None:
    code = """
import os, socket
place = (os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"]))
with socket.socket() as server:
    server.bind(place)
    server.listen()
    print("bound")
"""
    lab.plane.framework = "xgboost"
    worker = lab.worker(code).start()
    worker.end()
    assert worker.logs("worker-0-0.out") == b"bound\n"


def test_a_folder_of_the_user_is_worked_in_or_refused_with_the_reason(
    lab: Lab, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    worker = lab.worker("open('made', 'w').write('x')", here=str(own)).start()
    assert worker.end()["outcome"] == "succeeded" and (own / "made").exists()


@pytest.mark.parametrize(("level", "words"), [(0, "no such folder"), (1, "isolation level 1")])
def test_a_folder_that_cannot_be_worked_in_is_refused(lab: Lab, level: int, words: str) -> None:
    told = {"isolation": {"level": level, "network": "host"}} if level else {}
    record = lab.worker("pass", here="/nowhere/at/all", **told).start().end()
    assert record["outcome"] == "refused" and words in record["reason"]
