"""PyTorch DDP on the 1,797 handwritten digits that ship with scikit-learn.

An ordinary script: it would run under torchrun, too. Only the call of `windlass.log` is ours.
"""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # now: imported later, it would hold the group for ever
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no stubs
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import windlass

EPOCHS, BATCH = 12, 64


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    held_out = slice(0, 297)
    mine = torch.arange(297 + rank, len(labels), world)
    mine = mine[: (len(labels) - 297) // world]  # the same number of batches on every rank

    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    for epoch in range(1, EPOCHS + 1):
        order = mine[torch.randperm(len(mine))]
        for batch in torch.split(order, BATCH // world):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not say
            optimizer.step()
            step += 1
            mean = loss.detach()
            dist.all_reduce(mean)
            if rank == 0 and step % 5 == 0:
                windlass.log(step=step, loss=mean.item() / world)
        with torch.no_grad():
            right = (model(images[held_out]).argmax(1) == labels[held_out]).float().mean().item()
        print(f"epoch {epoch} loss={mean.item() / world:.4f} accuracy={right:.3f}", flush=True)
        if rank == 0:
            windlass.log(step=step, accuracy=right)
    # A thread of gloo's that still ran when the interpreter ends would abort the process: they end
    # with the group, and the group with the last that holds it.
    del model, optimizer, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
