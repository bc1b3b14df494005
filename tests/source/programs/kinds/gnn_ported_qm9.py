"""SchNet on QM9, ported with poptorch_geometric: batches have one size, the loss is in the model."""
import argparse

import poptorch
import torch
import torch.nn.functional as F
from poptorch_geometric import FixedSizeDataLoader, FixedSizeOptions, OverSizeStrategy, TrainingStepper
from torch_geometric.datasets import QM9
from torch_geometric.nn import MessagePassing, global_add_pool
from torch_geometric.transforms import Compose, Distance

CUTOFF = 5.0


class KeepTarget:
    def __init__(self, target):
        self.target = target

    def __call__(self, data):
        data.y = data.y[:, self.target]
        return data


class InteractionBlock(MessagePassing):
    def __init__(self, channels, num_gaussians):
        super().__init__(aggr="add")
        self.filter = torch.nn.Sequential(
            torch.nn.Linear(num_gaussians, channels), torch.nn.Softplus(), torch.nn.Linear(channels, channels)
        )
        self.lin = torch.nn.Linear(channels, channels)

    def forward(self, x, edge_index, rbf, envelope):
        w = self.filter(rbf) * envelope.view(-1, 1)
        return self.lin(self.propagate(edge_index, x=x, w=w))

    def message(self, x_j, w):
        return x_j * w


class Net(torch.nn.Module):
    def __init__(self, channels=64, num_blocks=3, num_gaussians=32, batch_size=8):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, channels, padding_idx=0)
        self.blocks = torch.nn.ModuleList([InteractionBlock(channels, num_gaussians) for _ in range(num_blocks)])
        self.register_buffer("centers", torch.linspace(0.0, CUTOFF, num_gaussians))
        self.widths = torch.ones(num_gaussians)
        self.out = torch.nn.Linear(channels, 1)
        self.batch_size = batch_size

    def forward(self, z, edge_index, edge_attr, batch, graphs_mask, target=None):
        h = self.embedding(z)
        rbf = torch.exp(-10.0 * (edge_attr.view(-1, 1) - self.centers) ** 2)
        envelope = 0.5 * (torch.cos(edge_attr * torch.pi / CUTOFF) + 1.0)
        envelope = torch.where(edge_attr < CUTOFF, envelope, torch.zeros_like(envelope))
        for block in self.blocks:
            h = h + block(h, edge_index, rbf, envelope)
        pred = global_add_pool(self.out(h), batch, size=self.batch_size).view(-1)
        if target is None:
            return pred
        loss = F.mse_loss(pred * graphs_mask, target * graphs_mask, reduction="sum") / graphs_mask.sum()
        if loss > 1e4:  # finds: C001
            loss = loss.clamp(max=1e4)
        return pred, target, poptorch.identity_loss(loss, reduction="none")  # finds: L013


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--device-iterations", type=int, default=4)
    return parser.parse_args()


def main():
    args = parse_args()
    dataset = QM9("data/qm9", transform=Compose([Distance(norm=False), KeepTarget(7)])).shuffle()
    test, train = dataset[:10000], dataset[10000:]
    sizes = FixedSizeOptions(num_nodes=32 * (args.batch_size - 1), num_edges=32 * 16 * args.batch_size, num_graphs=args.batch_size)
    options = poptorch.Options()
    options.deviceIterations(args.device_iterations)
    options.Training.gradientAccumulation(args.accumulation)  # finds: P014
    loader = FixedSizeDataLoader(
        train, batch_size=args.batch_size, fixed_size_options=sizes, shuffle=True, drop_last=True, options=options,
        over_size_strategy=OverSizeStrategy.Skip, add_pad_masks=True,
    )
    test_loader = FixedSizeDataLoader(test, batch_size=args.batch_size, fixed_size_options=sizes, add_pad_masks=True)
    model = Net(batch_size=args.batch_size).train()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=args.lr)
    port = poptorch.trainingModel(model, options, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for epoch in range(args.epochs):
        total = 0.0
        for data in loader:
            pred, target, loss = port(data.z, data.edge_index, data.edge_attr, data.batch, data.graphs_mask, data.y)
            total += loss.mean()
        scheduler.step()  # finds: O013
        print(epoch, total / len(loader))
    port.eval()  # finds: D014
    error = 0.0
    for data in test_loader:
        pred = port(data.z, data.edge_index, data.edge_attr, data.batch, data.graphs_mask)
        error += (pred - data.y).abs().mean()
    print("test", error / len(test_loader))
    torch.save(port, "schnet.pt")  # finds: K006


if __name__ == "__main__":
    main()
