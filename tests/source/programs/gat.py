import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, n_heads, concat=False, dropout=0.4, leaky_relu_slope=0.2):
        super().__init__()
        self.n_heads = n_heads
        self.n_hidden = out_features // n_heads if concat else out_features
        self.concat = concat
        self.W = nn.Parameter(torch.empty(size=(in_features, self.n_hidden * n_heads)))
        self.a = nn.Parameter(torch.empty(size=(n_heads, 2 * self.n_hidden, 1)))
        self.leakyrelu = nn.LeakyReLU(leaky_relu_slope)
        self.dropout = dropout

    def _get_attention_scores(self, h):
        source = torch.matmul(h, self.a[:, : self.n_hidden, :])
        target = torch.matmul(h, self.a[:, self.n_hidden :, :])
        return self.leakyrelu(source + target.mT)

    def forward(self, h, adj_mat):
        n_nodes = h.shape[0]
        h = torch.mm(h, self.W)
        h = h.view(n_nodes, self.n_heads, self.n_hidden).permute(1, 0, 2)
        e = self._get_attention_scores(h)
        connectivity_mask = -9e16 * torch.ones_like(e)
        e = torch.where(adj_mat > 0, e, connectivity_mask)
        attention = F.dropout(F.softmax(e, dim=-1), self.dropout, training=self.training)
        h_prime = torch.matmul(attention, h)
        if self.concat:
            return h_prime.permute(1, 0, 2).contiguous().view(n_nodes, -1)
        return h_prime.mean(dim=0)


class GAT(nn.Module):
    def __init__(self, in_features, n_hidden, n_heads, num_classes):
        super().__init__()
        self.gat1 = GraphAttentionLayer(in_features, n_hidden, n_heads, concat=True)
        self.gat2 = GraphAttentionLayer(n_hidden, num_classes, 1)

    def forward(self, x, adj_mat):
        x = F.elu(self.gat1(x, adj_mat))
        x = self.gat2(x, adj_mat)
        return F.log_softmax(x, dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--lr", type=float, default=0.005)
    args = parser.parse_args()
    x, adj, y = torch.load("cora.pt")
    net = GAT(x.shape[1], 64, 8, 7)
    optimizer = Adam(net.parameters(), lr=args.lr, weight_decay=5e-4, amsgrad=True)  # finds: O002
    criterion = nn.NLLLoss()
    for epoch in range(args.epochs):
        net.train()
        optimizer.zero_grad()  # finds: O008
        output = net(x, adj)
        loss = criterion(output[:1500], y[:1500])  # finds: L001
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        if epoch % 20 == 0:
            net.eval()  # finds: D014
            with torch.no_grad():
                acc = (net(x, adj)[1500:].argmax(1) == y[1500:]).float().mean()
            print("Epoch %d accuracy %.3f" % (epoch, acc.item()))


if __name__ == "__main__":
    main()
