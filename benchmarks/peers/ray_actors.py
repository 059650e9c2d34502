"""A parameter server as a Ray actor, as Ray's documentation describes one: the server's actor
holds the model, workers' actors get its weights and give it gradients, all as numpy arrays."""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
import torch

from benchmarks.peers import network


@ray.remote(num_cpus=1)
class Server:
    def prepare(self, size: str) -> None:
        self.model = network.network(size)
        self.optimizer = torch.optim.SGD(self.model.parameters(), network.RATE)

    def pull(self) -> list[Any]:
        return [each.detach().numpy() for each in self.model.parameters()]

    def push(self, gradients: list[Any]) -> None:
        for each, gradient in zip(self.model.parameters(), gradients, strict=True):
            each.grad = torch.from_numpy(gradient)
        self.optimizer.step()

    def loss(self) -> float:
        return network.loss_of(self.model)


@ray.remote(num_cpus=1)
class Worker:
    def prepare(self, size: str, rank: int, updates: int) -> None:
        self.learner = network.Learner(size, rank, updates)

    def work(self, server: Any) -> float:
        learner = self.learner
        began = time.perf_counter()
        for samples in learner.batches:
            learner.take([torch.from_numpy(each) for each in ray.get(server.pull.remote())])
            found = [each.numpy() for each in learner.gradients(samples)]
            ray.get(server.push.remote(found))
        return time.perf_counter() - began


def run(server: Any, workers: list[Any], size: str, updates: int) -> dict[str, Any]:
    ready = [each.prepare.remote(size, n, updates) for n, each in enumerate(workers)]
    ray.get([server.prepare.remote(size), *ready])
    return {
        "seconds": max(ray.get([each.work.remote(server) for each in workers])),
        "updates": updates * network.WORKERS,
        "loss": ray.get(server.loss.remote()),
    }


def main() -> None:
    ray.init(
        address="local", num_cpus=network.WORKERS + 1, include_dashboard=False,
        _temp_dir=sys.argv[1], log_to_driver=False, configure_logging=False,
    )  # fmt: skip
    try:
        server, workers = Server.remote(), [Worker.remote() for _ in range(network.WORKERS)]
        network.answer(lambda size, updates: run(server, workers, size, updates))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
