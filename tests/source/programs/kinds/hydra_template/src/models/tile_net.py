import torch
from torch import nn


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        if torch.rand(1).item() < self.p:  # finds: C001, C011
            return torch.zeros_like(x)
        return x / (1 - self.p)


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride, p):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Identity() if stride == 1 and c_in == c_out else nn.Conv2d(c_in, c_out, 1, stride)
        self.drop = DropPath(p)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return torch.relu(self.skip(x) + self.drop(h))


class TileNet(nn.Module):
    def __init__(self, width, blocks, num_classes, p_drop_path=0.0):
        super().__init__()
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        layers, c = [], width
        for i, n in enumerate(blocks):
            for j in range(n):
                layers.append(Block(c, width * 2**i, 2 if j == 0 and i > 0 else 1, p_drop_path))
                c = width * 2**i
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(c, num_classes)

    def forward(self, x):
        if torch.isnan(x).any():  # finds: C001
            x = torch.nan_to_num(x)
        x = self.layers(self.stem(x))
        return self.head(x.mean((2, 3)))
