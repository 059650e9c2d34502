"""A real worker picks up what its ranks tell without being asked to, and what they use."""

from __future__ import annotations

import base64
import json
import struct
import sys
from pathlib import Path
from typing import Any

from test_pickup_files import scalar
from worker_lab import Lab, Worker, until

from windlass.worker.pickup.usage import Kept

SCRIPT = """
import json, os, sys, time
run = os.environ["WINDLASS_RUN_DIR"]
def log(**values):
    line = json.dumps({"t": 1, "kind": "metric", "step": 7, "values": values}) + "\\n"
    file = os.open(run + "/spool-%s.jsonl" % os.environ["WINDLASS_RANK"],
                   os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
log(acc=0.75)
if os.environ["WINDLASS_RANK"] == "0":
    os.makedirs("runs/x")
    with open("runs/x/events.out.tfevents.1", "wb") as file:
        file.write(bytes.fromhex(sys.argv[1]))
print("epoch 1 loss=0.5 acc=0.25")
print(json.dumps({"reward": 3, "step": 9}))
sys.stderr.write("\\r10%|#| 1/10 [00:01<00:02, nll=0.5]\\r50%|##| 5/10 [00:01<00:02, nll=0.25]\\n")
print("listening on 127.0.0.1:8080, Namespace(lr=0.1)")
print("best=12.5 at gen 4")
"""


def lines(lab: Lab, rank: int = 0) -> list[dict[str, Any]]:
    """What the server was sent of a rank's spool."""
    return [
        line
        for _, name, body in lab.plane.calls
        if name == "spool" and body["rank"] == rank
        for line in body["lines"]
    ]


def run(lab: Lab, code: str, *words: str, nproc: int = 1, **changes: Any) -> Worker:
    command = [sys.executable, "-c", code, *words]
    members = [{"role": "worker", "index": 0, "nproc": nproc, "command": command}]
    worker = lab.worker(command, members=members, **changes).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    return worker


def metrics(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (key, line["step"], value, line.get("source", ""))
        for line in found
        if line["kind"] == "metric"
        for key, value in line["values"].items()
    )


def test_what_is_printed_and_filed_is_picked_up_and_the_scripts_own_word_wins(lab: Lab) -> None:
    events = (scalar("tb", 0.5, 3) + scalar("loss", 0.125, 4)).hex()
    worker = run(
        lab, SCRIPT, events, "--lr", "0.1", nproc=2, pickup=True,
        parse=[r"best=(?P<best>[0-9.]+) at gen (?P<step>\d+)"],
    )  # fmt: skip
    assert "Traceback" not in worker.words()
    assert metrics(lines(lab)) == [
        ("acc", 7, 0.75, ""),
        ("best", 4, 12.5, "stdout pattern"),
        ("loss", 4, 0.125, "tensorboard runs/x"),
        ("nll", 1, 0.5, "tqdm"),
        ("nll", 5, 0.25, "tqdm"),
        ("reward", 9, 3.0, "stdout JSON line"),
        ("tb", 3, 0.5, "tensorboard runs/x"),
    ]
    assert ("reward", 9, 3.0, "stdout JSON line") in metrics(lines(lab, 1)), "every rank's own"
    params = [line for line in lines(lab) if line["kind"] == "param"]
    assert [(line["source"], line["values"]["lr"]) for line in params] == [("argv", "0.1")]
    assert not [line for line in lines(lab, 1) if line["kind"] == "param"]


def test_a_line_that_cannot_be_read_ends_nothing(lab: Lab) -> None:
    code = (
        "for line in ('{\"loss\": 1' + '0' * 400 + '}', 'Epoch ' + '1' * 5000,\n"
        "             'step ' + '1' * 5000 + ' loss=1', 'loss=1 ' + 'a' * 8000,\n"
        "             'epoch=inf loss=1', 'step 3 loss=0.5'): print(line)"
    )
    worker = run(lab, code, pickup=True)
    assert "Traceback" not in worker.words()
    assert ("loss", 3, 0.5, "stdout key=value") in metrics(lines(lab))


def test_without_it_nothing_is_picked_up_but_what_the_script_logs(lab: Lab) -> None:
    run(lab, SCRIPT, scalar("tb", 0.5, 3).hex())
    assert metrics(lines(lab)) == [("acc", 7, 0.75, "")]


def test_secrets_are_masked_in_what_is_picked_up(lab: Lab) -> None:
    told = lab.plane.rendezvous

    def with_secret(node: str) -> dict[str, Any]:
        answer = told(node)
        answer["rendezvous"]["secrets"] = {"KEY": "hunter2hunter2"}
        return answer

    lab.plane.rendezvous = with_secret  # type: ignore[method-assign]
    run(lab, "print('loss_hunter2hunter2=0.5')", "--x", "hunter2hunter2", pickup=True)
    assert "hunter2" not in json.dumps(lines(lab))


def test_a_spool_that_is_a_link_is_not_written_to(lab: Lab, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("untouched")
    code = (
        "import os, sys\n"
        "os.symlink(sys.argv[1], os.environ['WINDLASS_RUN_DIR'] + '/spool-0.jsonl')\n"
        "print('loss=0.5')"
    )
    members = [
        {"role": "worker", "index": 0, "nproc": 1,
         "command": [sys.executable, "-c", code, str(target)]},
    ]  # fmt: skip
    worker = lab.worker([], members=members, pickup=True).start()
    worker.end()
    assert target.read_text() == "untouched"


WAIT = """
import os, time
data = bytearray(50 << 20)
while not os.path.exists("go"):
    sum(range(20000))
"""


def opened(minute: dict[str, Any]) -> dict[str, list[float]]:
    data = base64.b64decode(minute["data"])
    return {
        name: [value for value in struct.unpack_from("<60f", data, 240 * at) if value == value]
        for at, name in enumerate(minute["names"])
    }


def test_what_the_ranks_use_comes_with_the_beats_and_the_last_of_it_at_the_end(lab: Lab) -> None:
    worker = lab.worker(WAIT, sampling=True).start()

    def used(body: Any) -> bool:
        found = [opened(minute) for minute in body["usage"].get("minutes", ())]
        return any(max(each.get("cpu_percent", [0.0]), default=0) > 5 for each in found)

    body = lab.plane.wait_for("beat", where=used)
    (worker.directory / "work" / "go").touch()
    worker.end()
    values = opened(body["usage"]["minutes"][-1])
    assert max(values["memory_bytes"]) > 50 << 20
    assert max(values["node_memory_bytes"]) > 50 << 20
    assert {"disk_read_bytes", "disk_write_bytes", "node_network_in_bytes"} <= set(values)
    assert {minute["rank"] for minute in body["usage"]["minutes"]} == {0}


def test_minutes_that_the_server_cannot_take_wait_on_disk(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "usage"))
    for minute in range(30):
        for second in (1, 2):
            kept.put(0, 60 * minute + second, {"x": float(minute)})
    assert len(list((tmp_path / "usage").iterdir())) >= 20, "memory holds but a few"
    seen: dict[int, list[float]] = {}
    while kept.waiting or list((tmp_path / "usage").glob("*")):
        for minute_ in kept.sending():
            seen[minute_["minute_ms"]] = opened(minute_)["x"]
        kept.taken()
    assert seen == {60_000 * minute: [float(minute)] * 2 for minute in range(30)}


def test_a_worker_whose_server_is_away_goes_on_picking_up(lab: Lab) -> None:
    code = (
        "import os, time\nprint('loss=0.5', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\nprint('loss=0.25')"
    )
    worker = lab.worker(code, pickup=True).start()
    lab.plane.wait_for("started")
    lab.plane.stop()
    spool = worker.directory / "run" / "spool-0.jsonl"
    until(lambda: spool.exists() and '"loss":0.5' in spool.read_text())
    (worker.directory / "work" / "go").touch()
    worker.end()
    assert '"loss":0.25' in spool.read_text(), "it waits there for whoever reads it"
