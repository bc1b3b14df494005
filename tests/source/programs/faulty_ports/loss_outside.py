import poptorch
import torch
from torch import nn

from data import make_dataset

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = poptorch.optim.AdamW(model.parameters(), lr=1e-3)
opts = poptorch.Options()
opts.Training.gradientAccumulation(4)
loader = poptorch.DataLoader(opts, make_dataset(), batch_size=16, shuffle=True)
port = poptorch.trainingModel(model, opts, optimizer)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    for x, y in loader:
        out = port(x)
        loss = criterion(out, y)  # finds: L001
        loss.backward()  # finds: L010
print(model(x).argmax(1))
