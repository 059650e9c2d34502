"""Linear regression with Paddle's DataParallel: each rank has its own data."""

from __future__ import annotations

import paddle
import paddle.distributed as dist


def main() -> None:
    dist.init_parallel_env()  # does nothing for a single process
    rank, world_size = dist.get_rank(), dist.get_world_size()
    paddle.seed(rank)
    model = paddle.nn.Linear(1, 1)
    if world_size > 1:
        ranks = paddle.to_tensor([float(rank)])
        dist.all_reduce(ranks)
        assert int(ranks.item()) == world_size * (world_size - 1) // 2
        model = paddle.DataParallel(model)
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    losses = []
    for _ in range(50):
        x = paddle.randn([64, 1])
        loss = ((model(x) - (2 * x + 10)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    line = " ".join(f"{each.item():.2f}" for each in model.parameters())
    print(f"rank {rank} of {world_size} loss {losses[0]:.4f} -> {losses[-1]:.4f} weights {line}")


if __name__ == "__main__":
    main()
