import argparse
from types import SimpleNamespace

import poptorch
import torch
from torch import nn
from torch.utils.data import TensorDataset

from configuration import load_config


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


def get_options(config):
    options = poptorch.Options()
    options.deviceIterations(config.device_iterations)
    options.replicationFactor(config.replication_factor)
    options.Training.gradientAccumulation(config.gradient_accumulation)
    options.setAvailableMemoryProportion({f"IPU{i}": m for i, m in enumerate(config.ipu.matmul_proportion)})
    return options


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="base")
    known, rest = parser.parse_known_args()
    config = load_config(known.config)
    options = get_options(config)
    model = ModelWithLoss()
    data = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
    loader = poptorch.DataLoader(options, data, batch_size=config.micro_batch_size, num_workers=4)
    port = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=config.lr))
    for epoch in range(config.epochs):
        for x, y in loader:
            output, loss = port(x, y)
        print(loss)
