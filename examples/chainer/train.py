"""Linear regression of y = 2x + 10 in Chainer, which is no longer developed: one plain process."""

import warnings

warnings.filterwarnings("ignore")  # Chainer 7 uses what newer libraries deprecate

import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402
import numpy as np  # noqa: E402
from chainer import optimizers  # noqa: E402

x = np.random.RandomState(0).rand(64, 1).astype("f")
y = 2 * x + 10
model = L.Linear(1, 1)
optimizer = optimizers.SGD(lr=0.5)
optimizer.setup(model)
losses = []
for _ in range(300):
    loss = F.mean_squared_error(model(x), y)
    model.cleargrads()
    loss.backward()
    optimizer.update()
    losses.append(float(loss.array))
weights = f"{float(model.W.array[0, 0]):.2f} {float(model.b.array[0]):.2f}"
print(f"rank 0 of 1 loss {losses[0]:.6f} -> {losses[-1]:.6f} weights {weights}")
