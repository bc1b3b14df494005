import torch
from torch import nn
import poptorch

import copy

from torch.utils.data import TensorDataset, random_split


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


def train_client(model, data, options, epochs=1):
    """Train a copy of the server's model on the data of one client."""
    local = copy.deepcopy(model)
    optimizer = poptorch.optim.SGD(local.parameters(), lr=0.05)
    port = poptorch.trainingModel(local, options, optimizer)
    loader = poptorch.DataLoader(options, data, batch_size=4, drop_last=True)
    for _ in range(epochs):
        for x, y in loader:
            port(x, y)
    port.destroy()
    return local.state_dict()


options = poptorch.Options()
server = ModelWithLoss()
dataset = TensorDataset(torch.randn(400, 16), torch.randint(10, (400,)))
clients = random_split(dataset, [100] * 4)
for round_number in range(5):
    states = [train_client(server, data, options) for data in clients]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    server.load_state_dict(mean)
with torch.no_grad():
    server.eval()
    print((server(dataset.dataset.tensors[0] if hasattr(dataset, "dataset") else dataset.tensors[0])).shape)
