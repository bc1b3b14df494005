"""A PointNet-like segmentation network with balanced focal loss."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from shapes import ShapeNetPart


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class PointNet(nn.Module):
    def __init__(self, num_classes, quantize=True):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 64, 1)
        self.conv2 = nn.Conv1d(64, 128, 1)
        self.head = nn.Conv1d(192, num_classes, 1)
        self.quantize = quantize

    def forward(self, points):
        mask = points.abs().sum(1) > 0
        if mask.sum() == 0:  # finds: C001
            return points.new_zeros(points.size(0), 1)
        center = points[mask.unsqueeze(1).expand_as(points)].mean()  # finds: C002
        points -= center  # finds: C026
        x = F.relu(self.conv1(points))
        if self.quantize:
            x = RoundSTE.apply(x)  # finds: C005
        scale = x.abs().max().item()  # finds: C001
        x = x / scale
        if random.random() < 0.1:  # finds: C020
            x = x + 0.01 * torch.randn(x.shape)  # finds: C011
        ids = torch.nonzero(mask)  # finds: C002
        print("points", ids.shape[0], x)  # finds: C010
        y = F.relu(self.conv2(x))
        pooled = y.max(dim=2, keepdim=True)[0].repeat(1, 1, 1)
        host = pooled.cpu()  # finds: C004
        return self.head(torch.cat([x, host.expand(-1, -1, x.size(2))], 1))


def focal_loss(logits, labels, gamma=2.0):
    ce = F.cross_entropy(logits, labels, reduction="none")
    pt = torch.exp(-ce)
    return ((1 - pt) ** gamma * ce).mean()


def main():
    train_set = ShapeNetPart("data", split="train")
    loader = DataLoader(train_set, batch_size=16, shuffle=True, num_workers=4, drop_last=True)  # finds: B014
    model = PointNet(50)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)  # finds: O001
    for epoch in range(100):
        for i, (points, labels) in enumerate(loader):
            logits = model(points)
            loss = focal_loss(logits, labels)  # finds: L001
            optimizer.zero_grad()  # finds: O008
            loss.backward()  # finds: L010
            optimizer.step()  # finds: O007
            print(f"{epoch} {i} {loss}")  # finds: D020


if __name__ == "__main__":
    main()
