import torch
from torch import nn
from torch.utils.data import DataLoader

import poptorch
from data import train_set, valid_set


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, y):
        out = self.net(x)
        return out, self.criterion(out, y)


def train_epoch(model, loader):
    for x, y in loader:
        _, loss = model(x, y)
    return loss


def validate(model, loader):
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            out, loss = model(x, y)  # finds: D014
            total += loss.item()
    return total / len(loader)


opts = poptorch.Options()
net = Model()
port = poptorch.trainingModel(net, opts, optimizer=poptorch.optim.SGD(net.parameters(), lr=0.1))
train_loader = poptorch.DataLoader(opts, train_set, batch_size=8, shuffle=True)
valid_loader = poptorch.DataLoader(opts, valid_set, batch_size=8)
for epoch in range(10):
    train_epoch(port, train_loader)
    print(epoch, validate(port, valid_loader))
