"""Linear regression with MXNet's `dist_sync` kvstore: the servers hold the weights and add up the
workers' gradients. The scheduler and the servers run this same script; importing MXNet is enough
for them, and they stay in it until the workers are done.
"""

from __future__ import annotations

import os

import mxnet
from mxnet import autograd, gluon, nd


def main() -> None:
    distributed = "DMLC_ROLE" in os.environ
    store = mxnet.kv.create("dist_sync" if distributed else "local")
    rank, world_size = store.rank, store.num_workers
    mxnet.random.seed(rank)
    model = gluon.nn.Dense(1, in_units=1)
    model.initialize(mxnet.init.Zero())
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
    losses = []
    for _ in range(50):
        x = nd.random.normal(shape=(64, 1))
        with autograd.record():
            loss = ((model(x) - (2 * x + 10)) ** 2).sum()
        loss.backward()
        trainer.step(64 * world_size)
        losses.append(loss.asscalar() / 64)
    line = " ".join(f"{p.data().asnumpy().item():.2f}" for p in model.collect_params().values())
    print(f"rank {rank} of {world_size} loss {losses[0]:.4f} -> {losses[-1]:.4f} weights {line}")


if __name__ == "__main__":
    main()
