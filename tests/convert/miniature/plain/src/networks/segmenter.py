import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm        = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return nn.functional.leaky_relu(self.norm(self.convolution(x)))


class Segmenter(nn.Module):
    """Three planes share the weights, and meet at the deepest level."""

    def __init__(self, filters=4):
        super().__init__()
        self.first   = Block(1, filters)
        self.deepest = Block(3 * filters, 3 * filters)
        self.last    = nn.Conv2d(filters, 3, 1)

    def forward(self, x):
        planes  = [self.first(plane) for plane in torch.chunk(x, 3, dim=1)]
        deepest = self.deepest(nn.functional.max_pool2d(torch.cat(planes, dim=1), 2))
        deepest = nn.functional.interpolate(deepest, scale_factor=2)
        deepest = torch.chunk(deepest, 3, dim=1)
        return tuple(self.last(plane + deep) for plane, deep in zip(planes, deepest))
