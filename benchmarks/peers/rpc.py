"""A parameter server on torch.distributed.rpc, as torch's tutorials describe one: the server holds
model and optimiser, workers call functions on it. `pull` and `push` are two calls; with
`--fused` a push is answered with the parameters, and an update is one call."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import torch
from torch.distributed import rpc

from benchmarks.peers import network

_held: dict[str, Any] = {}
_lock = threading.Lock()


# -- on the server ----------------------------------------------------------------------------


def pull() -> list[torch.Tensor]:
    return [each.detach() for each in _held["model"].parameters()]


def push(gradients: list[torch.Tensor]) -> None:
    with _lock:
        for each, gradient in zip(_held["model"].parameters(), gradients, strict=True):
            each.grad = gradient
        _held["optimizer"].step()


def push_and_pull(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    push(gradients)
    return pull()


# -- on a worker ------------------------------------------------------------------------------


def prepare(size: str, rank: int, updates: int) -> None:
    _held["learner"] = network.Learner(size, rank, updates)


def work(fused: bool) -> float:
    learner: network.Learner = _held["learner"]
    began = time.perf_counter()
    if fused:
        values = rpc.rpc_sync("server", pull)
        for samples in learner.batches:
            learner.take(values)
            values = rpc.rpc_sync("server", push_and_pull, args=(learner.gradients(samples),))
    else:
        for samples in learner.batches:
            learner.take(rpc.rpc_sync("server", pull))
            rpc.rpc_sync("server", push, args=(learner.gradients(samples),))
    return time.perf_counter() - began


# -- both -------------------------------------------------------------------------------------


def run(size: str, updates: int) -> dict[str, Any]:
    model = network.network(size)
    _held.update(model=model, optimizer=torch.optim.SGD(model.parameters(), network.RATE))
    ranks = range(network.WORKERS)
    for rank in ranks:
        rpc.rpc_sync(f"worker-{rank}", prepare, args=(size, rank, updates))
    fused = "--fused" in sys.argv
    asked = [rpc.rpc_async(f"worker-{rank}", work, args=(fused,)) for rank in ranks]
    return {
        "seconds": max(each.wait() for each in asked),
        "updates": updates * network.WORKERS,
        "loss": network.loss_of(model),
    }


def join(name: str, rank: int, port: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TP_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=300)
    rpc.init_rpc(name, rank=rank, world_size=network.WORKERS + 1, rpc_backend_options=options)


def main() -> None:
    if sys.argv[1] == "worker":
        rank = int(sys.argv[2])
        join(f"worker-{rank}", rank + 1, sys.argv[3])
        rpc.shutdown()
        return
    port = sys.argv[2]
    command = [sys.executable, "-m", "benchmarks.peers.rpc", "worker"]
    workers = [
        subprocess.Popen([*command, str(rank), port, *sys.argv[3:]], stdin=subprocess.DEVNULL)
        for rank in range(network.WORKERS)
    ]
    try:
        join("server", 0, port)
        network.answer(run)
        rpc.shutdown()
    finally:
        for each in workers:
            each.wait(30)


if __name__ == "__main__":
    main()
