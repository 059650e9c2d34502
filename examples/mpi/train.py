"""Linear regression of y = 2x + 10 with mpi4py: each rank has its own data, the gradients are
averaged over all ranks."""

import argparse
import random
import time

from mpi4py import MPI

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.3)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each epoch")
options = parser.parse_args()

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
dice = random.Random(rank)
data = []
for _ in range(200):
    x = dice.uniform(-1, 1)
    data.append((x, 2 * x + 10 + dice.gauss(0, 0.01)))
print(f"rank {rank} of {size} is here", flush=True)


def average(value):
    return world.allreduce(value, op=MPI.SUM) / size


slope, offset = 0.0, 0.0
for epoch in range(1, options.epochs + 1):
    errors = [(slope * x + offset - y, x) for x, y in data]
    loss = average(sum(error * error for error, _ in errors) / len(data))
    down_slope = average(2 * sum(error * x for error, x in errors) / len(data))
    down_offset = average(2 * sum(error for error, _ in errors) / len(data))
    slope -= options.lr * down_slope
    offset -= options.lr * down_offset
    if rank == 0:
        print(f"epoch {epoch} loss={loss:.4f} y = {slope:.2f} x + {offset:.2f}", flush=True)
    time.sleep(options.pause)

# Every rank must have the same model: what one has and the average has.
assert abs(average(slope) - slope) < 1e-9 and abs(average(offset) - offset) < 1e-9
