import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, inplanes, outplanes, kernel=3):
        nn.Module.__init__(self)
        self.conv = nn.Conv2d(inplanes, outplanes, kernel_size=kernel, padding=kernel // 2)
        self.bn = nn.BatchNorm2d(outplanes)

    def forward(self, x):
        return F.leaky_relu(self.bn(self.conv(x)))


class UNetCore(nn.Module):
    def __init__(self, depth, n):
        nn.Module.__init__(self)
        self.depth_of_network = depth
        self.down = Block(n, n)
        self.up = Block(2 * n, n)
        self.main_module = UNetCore(depth - 1, n) if depth > 0 else Block(n, n, 5)

    def forward(self, x):
        residual = x
        x = tuple(F.max_pool2d(self.down(_x), 2) for _x in x)
        x = self.main_module(x) if self.depth_of_network > 0 else tuple(self.main_module(_x) for _x in x)
        x = tuple(F.interpolate(_x, scale_factor=2) for _x in x)
        return tuple(self.up(torch.cat([_x, r], dim=1)) for _x, r in zip(x, residual))


class UResNet(nn.Module):
    def __init__(self, params):
        nn.Module.__init__(self)
        self.initial_convolution = Block(1, params.n_initial_filters, 5)
        self.net_core = UNetCore(params.network_depth, params.n_initial_filters)
        self.bottleneck = nn.Conv2d(params.n_initial_filters, 3, kernel_size=1)

    def forward(self, input_tensor):
        x = torch.chunk(input_tensor, chunks=3, dim=1)
        x = tuple(self.initial_convolution(_x) for _x in x)
        x = self.net_core(x)
        return tuple(self.bottleneck(_x) for _x in x)
