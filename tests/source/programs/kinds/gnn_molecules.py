"""Properties of molecules: batches of graphs, missing labels, a learning rate that waits for the validation."""
import torch
import torch.nn.functional as F
from ogb.graphproppred import Evaluator, PygGraphPropPredDataset
from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, global_mean_pool
from torch_geometric.utils import degree, to_dense_adj
from tqdm import tqdm

DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class GINLayer(MessagePassing):
    def __init__(self, dim):
        super().__init__(aggr="add")
        self.mlp = Sequential(Linear(dim, 2 * dim), BatchNorm1d(2 * dim), ReLU(), Linear(2 * dim, dim))
        self.eps = torch.nn.Parameter(torch.zeros(1))
        self.bond_encoder = BondEncoder(emb_dim=dim)

    def forward(self, x, edge_index, edge_attr):
        return self.mlp((1 + self.eps) * x + self.propagate(edge_index, x=x, edge_attr=self.bond_encoder(edge_attr)))

    def message(self, x_j, edge_attr):
        return F.relu(x_j + edge_attr)

    def update(self, aggr_out):
        return aggr_out


class MolNet(torch.nn.Module):
    def __init__(self, num_tasks, num_layers=5, dim=300, virtual_node=True):
        super().__init__()
        self.atom_encoder = AtomEncoder(dim)
        self.layers = torch.nn.ModuleList([GINLayer(dim) for _ in range(num_layers)])
        self.norms = torch.nn.ModuleList([BatchNorm1d(dim) for _ in range(num_layers)])
        self.virtual = torch.nn.Embedding(1, dim) if virtual_node else None
        self.out = Linear(dim, num_tasks)

    def forward(self, data):
        x, edge_index, edge_attr, batch = data.x, data.edge_index, data.edge_attr, data.batch
        h = self.atom_encoder(x)
        if self.virtual is not None:
            num_graphs = batch.max().item() + 1  # finds: C001
            v = self.virtual(torch.zeros(num_graphs, dtype=torch.long, device=x.device))
        for layer, norm in zip(self.layers, self.norms):
            if self.virtual is not None:
                h = h + v[batch]
            h = F.dropout(F.relu(norm(layer(h, edge_index, edge_attr))), 0.5, training=self.training)
        return self.out(global_mean_pool(h, batch))


def train(model, loader, optimizer):
    model.train()
    total = 0
    for data in tqdm(loader, desc="train"):
        data = data.to(DEVICE)
        if data.x.shape[0] == 1 or data.batch[-1] == 0:
            continue
        optimizer.zero_grad()  # finds: O008
        pred = model(data)
        labeled = data.y == data.y
        loss = F.binary_cross_entropy_with_logits(pred[labeled], data.y[labeled].float())  # finds: L001, C002
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        total += loss.item()  # finds: D020
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader, evaluator):
    model.eval()  # finds: D014
    y_true, y_pred = [], []
    for data in loader:
        pred = model(data.to(DEVICE))
        y_true.append(data.y.view(pred.shape).cpu())
        y_pred.append(pred.cpu())  # finds: D020
    return evaluator.eval({"y_true": torch.cat(y_true).numpy(), "y_pred": torch.cat(y_pred).numpy()})["rocauc"]


def main():
    dataset = PygGraphPropPredDataset("ogbg-molhiv")
    split = dataset.get_idx_split()
    evaluator = Evaluator("ogbg-molhiv")
    train_loader = DataLoader(dataset[split["train"]], batch_size=256, shuffle=True, num_workers=4)  # finds: B010, B018
    valid_loader = DataLoader(dataset[split["valid"]], batch_size=256)  # finds: B010, B018
    model = MolNet(dataset.num_tasks).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=5)
    best = 0.0
    for epoch in range(100):
        loss = train(model, train_loader, optimizer)
        score = evaluate(model, valid_loader, evaluator)
        scheduler.step(score)  # finds: O013
        if score > best:
            best = score
            torch.save({"model": model.state_dict(), "epoch": epoch}, "best.pt")
        print(f"{epoch:03d} loss {loss:.4f} rocauc {score:.4f}")


if __name__ == "__main__":
    main()
