"""Torch's profiler in a job that runs, without a change of its code."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
# At a pace: what a fast machine can do in a second makes a trace that is too large to be sent.
TRAIN = """
import time, torch
torch.set_num_threads(1)
layer, x = torch.nn.Linear(64, 64), torch.randn(32, 64)
print('up', flush=True)
while True:
    layer(x).sum().backward()
    time.sleep(0.005)
"""
PLAIN = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"


def test_a_trace_of_torch_is_written_kept_with_the_job_and_names_its_operators(
    shared: Platform, tmp_path: Path
) -> None:
    job = shared.submit([sys.executable, "-c", TRAIN])
    wait_for(lambda: "up" in shared.logs(job), 120, "it trains")
    out = tmp_path / "seen"
    done = shared.cli("debug", "profile", "--trace", "--seconds", "1", "--out", str(out), job.id)
    assert done.returncode == 0, done.stderr
    [path] = done.stdout.split()
    events = json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]
    assert {"aten::linear", "aten::sum"} <= {event.get("name") for event in events}
    kept = shared.client.http.get(f"/runs/{job.id}/artifacts", {"path": "profiles"})["items"]
    assert [item["path"].endswith(".pt.trace.json.gz") for item in kept] == [True]
    assert shared.client.jobs.get(job.id).state == "running", "it goes on"
    again = shared.client.jobs.debug(job.id, "trace", seconds=1)
    assert again["ranks"][0]["data"], "as often as one likes"
    shared.client.jobs.stop(job.id, now=True)


def test_a_job_without_torch_says_so(shared: Platform) -> None:
    job = shared.submit([sys.executable, "-c", PLAIN])
    wait_for(lambda: "up" in shared.logs(job), 60, "it runs")
    done = shared.cli("debug", "profile", "--trace", "--seconds", "1", job.id)
    assert done.returncode != 0 and "imported torch or TensorFlow" in done.stderr
    shared.client.jobs.stop(job.id, now=True)
