"""The same training twice: `before.py` is an ordinary loop, `after.py` runs on many processes."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils import data

import windlass.train as wt

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
dataset = data.TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
trainer = wt.Trainer(wt.Task(model, wt.mean_loss(cross_entropy), optimizer, wt.Data(dataset, 64)))

for epoch in trainer.epochs(5):
    for batch in trainer.batches():
        loss = trainer.step(batch).mean
    print(f"epoch {epoch} loss={loss:.4f}")
