"""Linear regression of y = 2x + 10 with Horovod and torch; nothing of the platform in it."""

import argparse

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.3)
options = parser.parse_args()

hvd.init()
torch.manual_seed(hvd.rank())
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
x = torch.rand(200, 1) * 2 - 1
y = 2 * x + 10 + 0.01 * torch.randn(200, 1)
print(f"rank {hvd.rank()} of {hvd.size()} is here", flush=True)

model = torch.nn.Linear(1, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=options.lr), named_parameters=model.named_parameters()
)
for epoch in range(1, options.epochs + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch} loss={mean.item():.4f}", flush=True)

weights = hvd.allgather(model.weight.detach().reshape(1, 1), name="weights")
assert torch.allclose(weights, weights[:1].expand_as(weights)), "the ranks' models differ"
hvd.shutdown()
