from dataclasses import dataclass, field, replace

import poptorch
import torch
from torch import nn
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


@dataclass
class IpuConfig:
    num_ipus: int = 1
    replicas: int = 1
    gradient_accumulation: int = 1


@dataclass
class Config:
    lr: float = 0.1
    precision: str = "half"
    ipu: IpuConfig = field(default_factory=IpuConfig)


def run(config: Config):
    options = poptorch.Options()
    options.replicationFactor(config.ipu.replicas)
    options.Training.gradientAccumulation(config.ipu.gradient_accumulation)
    model = ModelWithLoss()
    if config.precision == "half":
        model = model.half()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=config.lr, loss_scaling=128)
    port = poptorch.trainingModel(model, options, optimizer)
    data = TensorDataset(torch.randn(512, 16).half(), torch.randint(10, (512,)))
    losses = [port(x, y)[1].mean().item() for x, y in poptorch.DataLoader(options, data, batch_size=8)]
    port.destroy()
    return sum(losses) / len(losses)


for lr in (0.1, 0.01):
    for accumulation in (1, 8):
        config = replace(Config(lr=lr), ipu=IpuConfig(gradient_accumulation=accumulation))
        print(lr, accumulation, run(config))
