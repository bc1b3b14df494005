import torch
from torch import nn
import poptorch

from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
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


def get_scheduler(epochs):
    """The schedule is computed by an optimizer that trains nothing."""
    dummy = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    return dummy, CosineAnnealingLR(dummy, T_max=epochs)


dataset = TensorDataset(torch.randn(256, 16), torch.randint(10, (256,)))
options = poptorch.Options().deviceIterations(2)
options.Training.gradientAccumulation(4)
model = ModelWithLoss()
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, use_combined_accum=False)
dummy, scheduler = get_scheduler(10)
port = poptorch.trainingModel(model, options=options, optimizer=optimizer)
loader = poptorch.DataLoader(options, dataset, batch_size=8, shuffle=True, drop_last=True)
for epoch in range(10):
    for x, y in loader:
        _, loss = port(x, y)
    dummy.step()
    scheduler.step()
    for group in optimizer.param_groups:
        group["lr"] = scheduler.get_last_lr()[0]
    port.setOptimizer(optimizer)
