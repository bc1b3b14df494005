import torch
from torch import nn
import poptorch

import numpy as np


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


def test_ipu_matches_cpu():
    torch.manual_seed(0)
    cpu_model = ModelWithLoss().train()
    ipu_model = ModelWithLoss().train()
    ipu_model.load_state_dict(cpu_model.state_dict())
    cpu_optimizer = torch.optim.AdamW(cpu_model.parameters(), lr=1e-3)
    ipu_optimizer = poptorch.optim.AdamW(ipu_model.parameters(), lr=1e-3, loss_scaling=1.0)
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    poptorch_model = poptorch.trainingModel(ipu_model, options, optimizer=ipu_optimizer)
    x, y = torch.randn(8, 16), torch.randint(10, (8,))
    for step in range(10):
        _, ipu_loss = poptorch_model(x.repeat(4, 1), y.repeat(4))
        cpu_optimizer.zero_grad()
        for _ in range(4):
            _, cpu_loss = cpu_model(x, y)
            cpu_loss.div(4).backward()
        cpu_optimizer.step()
        assert np.allclose(cpu_loss.detach().numpy(), ipu_loss.mean().numpy(), atol=1e-5)
