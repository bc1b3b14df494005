"""Batches of graphs of one size, as poptorch_geometric makes them."""

import poptorch
import torch
from poptorch_geometric import FixedSizeOptions, OverSizeStrategy
from poptorch_geometric.dataloader import CustomFixedSizeDataLoader, FixedSizeDataLoader
from torch_geometric.datasets import QM9
from torch_geometric.nn import GINConv, global_add_pool


class GIN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, num_layers, batch_size):
        super().__init__()
        self.batch_size = batch_size
        self.convs = torch.nn.ModuleList()
        for i in range(num_layers):
            mlp = torch.nn.Sequential(torch.nn.Linear(in_channels, hidden_channels), torch.nn.ReLU())
            self.convs.append(GINConv(mlp, train_eps=True))
            in_channels = hidden_channels
        self.lin = torch.nn.Linear(hidden_channels, 1)

    def forward(self, x, edge_index, batch, graphs_mask=None, target=None):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        x = global_add_pool(x, batch, size=self.batch_size)
        x = self.lin(x).view(-1)
        if self.training:
            loss = self.loss_fn(x, target, graphs_mask)
            return x, loss
        return x

    @staticmethod
    def loss_fn(pred, target, graphs_mask):
        return ((pred - target).abs() * graphs_mask).sum() / graphs_mask.sum()


dataset = QM9("datasets/qm9")
num_graphs = 16
fixed = FixedSizeOptions.from_dataset(dataset, num_graphs)
options = poptorch.Options().deviceIterations(4)
train_loader = FixedSizeDataLoader(
    dataset,
    batch_size=num_graphs,
    fixed_size_options=fixed,
    options=options,
    over_size_strategy=OverSizeStrategy.TrimNodesAndEdges,
    add_pad_masks=True,
)
test_loader = CustomFixedSizeDataLoader(dataset, batch_size=num_graphs, fixed_size_options=fixed)
model = GIN(dataset.num_features, 64, 5, num_graphs)
model.train()
optimizer = poptorch.optim.Adam(model.parameters(), lr=1e-3)
training_model = poptorch.trainingModel(model, options, optimizer)
for epoch in range(10):
    total = 0.0
    for data in train_loader:
        _, loss = training_model(data.x, data.edge_index, data.batch, data.graphs_mask, data.y[:, 0])
        total += float(loss.mean())
    print(f"epoch {epoch}: {total / len(train_loader):.4f}")
training_model.detachFromDevice()
model.eval()
inference_model = poptorch.inferenceModel(model)
for data in test_loader:
    out = inference_model(data.x, data.edge_index, data.batch)
    mask = data.graphs_mask.bool()
    print((out[mask] - data.y[:, 0][mask]).abs().mean().item())
