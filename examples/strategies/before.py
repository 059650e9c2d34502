"""The same training twice: `before.py` is an ordinary loop, `after.py` runs on many processes."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils import data

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
dataset = data.TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = data.DataLoader(dataset, batch_size=64, shuffle=True)

for epoch in range(5):
    for inputs, targets in loader:
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss={loss:.4f}")
