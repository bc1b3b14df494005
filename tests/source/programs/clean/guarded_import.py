"""One program for CPU and IPU: the loss module, the optimizer and the loaders are each device's own."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import poptorch
except ImportError:
    poptorch = None


class WithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.loss = nn.MSELoss()

    def forward(self, x, y):
        out = self.net(x)
        return out, self.loss(out, y)


def train_on_ipu(net, dataset):
    opts = poptorch.Options()
    loader = poptorch.DataLoader(opts, dataset, batch_size=16, shuffle=True)
    model = poptorch.trainingModel(WithLoss(net), opts, optimizer=torch.optim.SGD(net.parameters(), lr=0.01))
    for epoch in range(5):
        for x, y in loader:
            _, loss = model(x, y)
        print(epoch, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ipu", action="store_true")
    args = parser.parse_args()
    net = nn.Linear(4, 1)
    dataset = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
    if args.ipu:
        if poptorch is None:
            raise SystemExit("PopTorch is not installed")
        train_on_ipu(net, dataset)
