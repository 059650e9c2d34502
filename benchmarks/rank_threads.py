"""Claim: two ranks of an unedited training script make as many steps a second as under their own
launcher.

Ranks that each start a thread for every core fight for them: that once made this 15 times slower.
The same script under `windlass run --workers 2` and under `torchrun`, in turns, each printing its
own steps a second once it is warm, so that the start counts for neither. Where TensorFlow or
LightGBM is installed the same is done with two processes started by hand, which is what their
documents call a launcher, each told half the cores.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, at_least, folder, interleave, median, script, windlass
from windlass.testing.platform import Platform

ROUNDS = 3
RANKS = 2
RATE = re.compile(r"rate ([0-9.]+)")

TORCH = """\
import time
import torch
from torch import nn
import torch.distributed as dist
import torch.distributed.nn  # before the group, see docs/reference/frameworks.md

class Fire(nn.Module):
    def __init__(self, width, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(width, squeeze, 1)
        self.one = nn.Conv2d(squeeze, expand, 1)
        self.three = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.relu(torch.cat((self.one(x), self.three(x)), 1))

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(  # SqueezeNet 1.1
    nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True),
    Fire(64, 16, 64), Fire(128, 16, 64), nn.MaxPool2d(3, 2, ceil_mode=True),
    Fire(128, 32, 128), Fire(256, 32, 128), nn.MaxPool2d(3, 2, ceil_mode=True),
    Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
    nn.Dropout(0.5), nn.Conv2d(512, 100, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
)
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
images, labels = torch.randn(8, 3, 160, 160), torch.randint(0, 100, (8,))
for step in range(25):
    if step == 5:
        began = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"rate {20 / (time.perf_counter() - began)}\\n", end="", flush=True)
del model, optimizer
dist.destroy_process_group()
"""
TENSORFLOW = """\
import json, os, time
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    net = tf.keras.Sequential([
        tf.keras.layers.Conv2D(64, 3, activation="relu", input_shape=(96, 96, 3)),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(128, 3, activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10),
    ])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile("sgd", loss)
data = tf.data.Dataset.from_tensors((tf.random.normal((32, 96, 96, 3)), tf.zeros(32))).repeat()
net.fit(data, steps_per_epoch=5, verbose=0)
began = time.perf_counter()
net.fit(data, steps_per_epoch=20, verbose=0)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    print(f"rate {20 / (time.perf_counter() - began)}\\n", end="", flush=True)
"""
LIGHTGBM = """\
import os, time
import lightgbm, numpy

rank = int(os.environ["RANK"])
random = numpy.random.default_rng(rank)
rows = random.normal(size=(100_000, 40))
data = lightgbm.Dataset(rows, (rows[:, 0] > 0).astype(int))
given = {
    "objective": "binary", "tree_learner": "data", "verbose": -1, "num_machines": 2,
    "machines": os.environ["LIGHTGBM_MACHINES"],
    "local_listen_port": int(os.environ["LIGHTGBM_LOCAL_LISTEN_PORT"]),
}
began = time.perf_counter()
lightgbm.train(given, data, num_boost_round=40)
if rank == 0:
    print(f"rate {40 / (time.perf_counter() - began)}\\n", end="", flush=True)
"""


def measure() -> list[Row]:
    rows = []
    with folder() as place, Platform(place / "home") as platform:
        for name, claim, text, peer in CONTESTS:
            if importlib.util.find_spec(name) is None:
                continue
            work = place / name
            work.mkdir()
            (work / "train.py").write_text(text)
            command, env = windlass(platform.home, "run", "--workers", str(RANKS), "train.py")
            env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
            contestants = {
                "ours": partial(_rate, partial(_alone, command), env, work),
                "peer": partial(_rate, peer, env, work),
            }
            found = interleave(contestants, ROUNDS, warm=False)
            ours, theirs = median(found["ours"]), median(found["peer"])
            rows.append(at_least(claim, ours, theirs, 1.0, lambda rate: f"{rate:.2f} steps/s"))
    return rows


Started = list[tuple[list[str], dict[str, str]]]
Launcher = Callable[[dict[str, str]], Started]


def _rate(launcher: Launcher, env: dict[str, str], work: Path) -> float:
    """Run them side by side; the steps a second that rank 0 tells."""
    running = [
        subprocess.Popen(command, cwd=work, env=env, stdout=subprocess.PIPE, text=True)
        for command, env in launcher(env)
    ]
    said = [process.communicate(timeout=550)[0] for process in running]
    assert all(process.returncode == 0 for process in running), said
    told = RATE.search("".join(said))
    assert told, said
    return float(told[1])


def _alone(command: list[str], env: dict[str, str]) -> Started:
    return [(command, env)]


def _torchrun(env: dict[str, str]) -> Started:
    words = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(RANKS), "train.py",
    ]  # fmt: skip
    return [(words, env)]


def _tensorflow(env: dict[str, str]) -> Started:
    workers = [f"127.0.0.1:{port}" for port in _ports()]
    tasks = ({"type": "worker", "index": index} for index in range(RANKS))
    return _by_hand(
        {**env, "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
        for task in tasks
    )


def _lightgbm(env: dict[str, str]) -> Started:
    ports = _ports()
    machines = ",".join(f"127.0.0.1:{port}" for port in ports)
    return _by_hand(
        {
            **env, "RANK": str(rank), "LIGHTGBM_MACHINES": machines,
            "LIGHTGBM_LOCAL_LISTEN_PORT": str(port),
        }
        for rank, port in enumerate(ports)
    )  # fmt: skip


def _by_hand(environments: Iterable[dict[str, str]]) -> Started:
    threads = str(max(1, (os.cpu_count() or 1) // RANKS))
    names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    told = dict.fromkeys(names, threads)
    return [([sys.executable, "train.py"], {**env, **told}) for env in environments]


def _ports() -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(RANKS)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


CONTESTS = (
    ("torch", "SqueezeNet, 2 ranks of DDP: steps/s (torchrun)", TORCH, _torchrun),
    ("tensorflow", "a small net, MultiWorkerMirrored on 2 (by hand)", TENSORFLOW, _tensorflow),
    ("lightgbm", "data-parallel trees on 2: rounds/s (by hand)", LIGHTGBM, _lightgbm),
)
"""By module: the claim, the script, and its own launcher. What is not installed is left out."""


if __name__ == "__main__":
    script(measure)
