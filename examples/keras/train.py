"""A Keras 3 model, trained on one process or several: an ordinary script for the torch backend.

Keras builds the model, which is a torch module; torch's own DistributedDataParallel trains it.

KERAS_BACKEND=torch python train.py                                           one process
KERAS_BACKEND=torch torchrun --standalone --nproc-per-node 2 train.py         two
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in eight dimensions, in three classes by which of three directions they lean to."""
    random = np.random.default_rng(0)
    points = random.normal(size=(1536, 8)).astype("float32")
    directions = random.normal(size=(8, 3)).astype("float32")
    return points, (points @ directions).argmax(axis=1)


def build_model() -> keras.Model:
    return keras.Sequential(
        [keras.Input(shape=(8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)]
    )


def fit(options: argparse.Namespace) -> None:
    """One process: Keras does it all."""
    model = build_model()
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    points, labels = load_data()
    history = model.fit(points, labels, batch_size=options.batch, epochs=options.epochs, verbose=0)
    for epoch, loss in enumerate(history.history["loss"], 1):
        print(f"epoch {epoch} loss={loss:.4f}", flush=True)


def fit_together(options: argparse.Namespace) -> None:
    """Several: each takes its share of every batch."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world_size}", flush=True)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    points, labels = map(torch.from_numpy, load_data())
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(1)
        for batch in order.split(options.batch):
            mine = batch[rank::world_size]
            loss = torch.nn.functional.cross_entropy(model(points[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(mine)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss={total.item() / len(points):.4f}", flush=True)
    # No destroy_process_group: gloo's last work holds a reference to a Python object of Keras, and
    # whoever takes the group apart while its thread lets go of that waits for ever (torch 2.13).


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="over all processes together")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        fit_together(options)
    else:
        fit(options)


if __name__ == "__main__":
    main()
