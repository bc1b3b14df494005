import torch
from torch import nn

REGISTRY = {}


def register(name):
    def add(cls):
        REGISTRY[name] = cls
        return cls

    return add


@register("mlp")
class MLP(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        sizes = [2] + [hidden] * layers + [1]
        self.linears = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])
        self.slope = nn.Parameter(torch.ones(layers))

    def forward(self, xt):
        h = xt
        for i, linear in enumerate(self.linears[:-1]):
            h = torch.tanh(self.slope[i] * linear(h))
        return self.linears[-1](h)


@register("fourier")
class FourierMLP(nn.Module):
    def __init__(self, hidden, layers, num_freqs=32):
        super().__init__()
        self.freqs = torch.randn(2, num_freqs) * 3.0
        self.body = MLP(hidden, layers)
        self.inp = nn.Linear(2 * num_freqs, 2)

    def forward(self, xt):
        angles = xt @ self.freqs
        return self.body(self.inp(torch.cat([angles.sin(), angles.cos()], -1)))


def build(cfg):
    return REGISTRY[cfg.type](cfg.hidden, cfg.layers)
