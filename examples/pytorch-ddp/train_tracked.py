"""The same training as `train.py`, with metrics, checkpoints and resuming: five more calls.

Runs on the platform and off it, under plain `python` and `torchrun` alike.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # now: imported later, it would hold the group for ever
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import windlass
from train import accuracy, build_model, load_data


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=64, help="over all processes together")
    parser.add_argument(
        "--resume", action="store_true", help="off the platform: go on from the last run"
    )
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    windlass.context(watch_stop=True)
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

    begun = 0
    found = windlass.resume_from(local=options.resume)
    if found is not None:
        state = torch.load(found / "state.pt", weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begun = state["epoch"]
        if rank == 0:
            print(f"resumed after epoch {begun}", flush=True)

    for epoch in range(begun + 1, options.epochs + 1):
        sampler.set_epoch(epoch)
        total = torch.zeros(3)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels), 0.0])
        total[2] = float(windlass.should_stop())  # one rank asked to stop stops all of them
        dist.all_reduce(total)
        if rank == 0:
            mean, right = (total[0] / total[1]).item(), accuracy(model.module, testing)
            print(f"epoch {epoch} loss={mean:.4f} acc={right:.4f}", flush=True)
            windlass.log(step=epoch, loss=mean, accuracy=right)
            windlass.progress(epoch, options.epochs, "epochs")
            with windlass.checkpoint(epoch) as path:
                torch.save(
                    {
                        "model": model.module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "epoch": epoch,
                    },
                    path / "state.pt",
                )
        if total[2] > 0:
            break

    dist.barrier()  # nobody leaves while another still needs the store
    # A thread of gloo's that still ran when the interpreter ends would abort the process: they end
    # with the group, and the group with the last that holds it (so the import at the top: DDP does
    # it too, when there is a group already that becomes the default of its functions).
    model = optimizer = loss = None
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
