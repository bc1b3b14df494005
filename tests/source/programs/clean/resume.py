import torch
from torch import nn
import poptorch

import os

from torch.utils.data import TensorDataset


class ModelWithLoss(nn.Module):
    def __init__(self, hidden=32, num_classes=10):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        output = self.layers(x)
        if labels is None:
            return output
        return output, self.criterion(output, labels)


def load(path, model, optimizer):
    if not os.path.exists(path):
        return 0
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"] + 1


options = poptorch.Options()
dataset = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
model = ModelWithLoss()
optimizer = poptorch.optim.LAMB(model.parameters(), lr=1e-3, bias_correction=True)
first = load("last.pt", model, optimizer)
port = poptorch.trainingModel(model, options, optimizer)
loader = poptorch.DataLoader(
    options,
    dataset,
    batch_size=8,
    mode=poptorch.DataLoaderMode.AsyncRebatched,
    async_options={"early_preload": True},
    num_workers=4,
)
for epoch in range(first, 10):
    for x, y in loader:
        output, loss = port(x, y)
    port.copyWeightsToHost()
    state = {"model": model.state_dict(), "optimizer": port.state_dict(), "epoch": epoch}
    torch.save(state, "last.pt")
loader.terminate()
