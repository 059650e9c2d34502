"""Handwritten digits with PyTorch's DistributedDataParallel: an ordinary script.

python train.py                                          one process
torchrun --standalone --nproc-per-node 2 train.py        two
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # now: imported later, it would hold the group for ever
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8 pixels that come with scikit-learn; every fifth one is for testing."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    testing = torch.arange(len(labels)) % 5 == 0
    return (
        TensorDataset(images[~testing], labels[~testing]),
        TensorDataset(images[testing], labels[testing]),
    )


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=64, help="over all processes together")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    training, testing = load_data()
    sampler = DistributedSampler(training, seed=0)
    loader = DataLoader(training, batch_size=options.batch // world_size, sampler=sampler)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(total)
        if rank == 0:
            mean = (total[0] / total[1]).item()
            print(
                f"epoch {epoch} loss={mean:.4f} acc={accuracy(model.module, testing):.4f}",
                flush=True,
            )

    dist.barrier()  # nobody leaves while another still needs the store
    # A thread of gloo's that still ran when the interpreter ends would abort the process: they end
    # with the group, and the group with the last that holds it (so the import at the top: DDP does
    # it too, when there is a group already that becomes the default of its functions).
    del model, optimizer, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
