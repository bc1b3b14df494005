import torch
from torch import nn
import poptorch

import copy

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


def update_average(averaged, model, decay=0.99):
    with torch.no_grad():
        for mean, new in zip(averaged.parameters(), model.parameters()):
            mean.mul_(decay).add_(new, alpha=1 - decay)


dataset = TensorDataset(torch.randn(256, 16), torch.randint(10, (256,)))
options = poptorch.Options()
model = ModelWithLoss()
averaged = copy.deepcopy(model)
optimizer = poptorch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
port = poptorch.trainingModel(model, options=options, optimizer=optimizer)
loader = poptorch.DataLoader(options, dataset, batch_size=8, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        _, loss = port(x, y)
    port.copyWeightsToHost()
    update_average(averaged, model)
averaged.eval()
with torch.no_grad():
    accuracy = (averaged(dataset.tensors[0]).argmax(-1) == dataset.tensors[1]).float().mean().item()
print(accuracy)
torch.save(averaged.state_dict(), "averaged.pt")
