"""Places where Python asks a tensor for its value, in any syntax, and those that look alike."""

from __future__ import annotations

import textwrap

import pytest

START = """\
import math
import sys
import numpy as np
import torch
from torch import nn
def fold(a):
    return a if a.mean() > 0 else -a
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.pair = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("steps", torch.zeros(()))
        self.gain = nn.Parameter(torch.ones(1))
        self.solvers = {"a": self.halve, "b": fold}
    def halve(self, h):
        while h.norm() > 1:
            h = h / 2
        return h
    def forward(self, x, scale=1.0, mask=None, mode="a", n=None):
        h = self.lin(x)
        t = h.argmax()
"""
END = """
        return h
Gate()(torch.rand(4, 4))
"""


def list_asked(facts_of, body, asks):
    facts = facts_of(START + textwrap.indent(textwrap.dedent(body), "        ") + END)
    return [read for read in facts.reads if read.asks == asks and read.where.in_forward]


@pytest.mark.parametrize(
    "line",
    [
        "if h.sum() > 1: h = -h",
        "h = h if h.mean() > 0 else -h",
        "z = (h.mean() > 0) and n",
        "z = n or (h.mean() > 0) or n",
        "z = not h.mean()",
        "z = [v for v in [h, x] if v.sum() > 0]",
        "z = {k: v for k, v in enumerate([h, x]) if v.any()}",
        "assert torch.isfinite(h).all()",
        "while h.sum() > 3: h = h / 2",
        "z = 0 < h.mean() < 1",
        "z = max(h.mean(), x.mean())",
        "z = min(h.mean(), 3)",
        "z = max([h.mean(), x.mean()])",
        "z = sorted([h, x], key=lambda v: v.mean())",
        "z = any(v.sum() > 0 for v in [h, x])",
        "z = all([h.sum() > 0])",
        "z = list(filter(lambda v: v.sum() > 0, [h, x]))",
        "z = h[:t]",
        "z = h[:, : h.argmax()]",
        "z = h[: int(t)]",
        "z = [h, x][t]",
        "h = self.pair[t](h)",
        "for i in range(t): h = h + i",
        "for i in range(int(t)): h = h + i",
        "g = lambda v, k=float(t): v * k",
        "def g(v, k=t.item()): return v",
        "if torch.equal(h, x): h = x",
        "h = h * math.sqrt(h.var())",
        "h = h + torch.arange(h.max())",
        "z = torch.tensor([h.mean(), h.max()])",
        "if self.steps > 100: h = h * 2",
        "h = h * float(self.steps)",
        "if self.gain > 2: h = h * 2",
        "h = h * (2 if (u := h.mean()) > 0 else 1)",
        "h = fold(h)",
        "h = (lambda v: v if v.sum() > 0 else -v)(h)",
        "h = self.solvers[mode](h)",
        "h = getattr(self, 'halve')(h)",
        "flag = h.sum() > 0\nif flag: h = -h",
    ],
)
def test_python_asks_for_a_value(facts_of, line):
    assert list_asked(facts_of, line, "value")


@pytest.mark.parametrize(
    "line",
    ["z = f'{h.mean()}'", "z = '%s' % h.mean()", "z = '{}'.format(h.mean())", "z = str(h)", "print(h)"],
)
def test_python_asks_for_a_text(facts_of, line):
    assert list_asked(facts_of, line, "text")


@pytest.mark.parametrize(
    "line",
    [
        "if self.training: h = -h",
        "if mask is not None: h = h * mask",
        "if mode == 'a' or mode in ('b', 'c'): h = h * 2",
        "if n and n > 3: h = h * n",
        "h = h * (scale or 1)",
        "assert h.shape[-1] == 4, f'bad {h}'",
        "z = max(h.shape[0], x.size(1))",
        "z = sorted([h, x], key=len)",
        "z = np.ceil(np.log(x.shape[0])).astype('int').item()",
        "for i in range(h.shape[0]): h = h + i",
        "for i in range(len(self.pair)): h = self.pair[i](h)",
        "z = h[: x.size(0)]",
        "z = h[x.argmax(dim=1)]",
        "z = f'{h.shape} {h.dtype}'",
        "z = [part for part in self.pair if isinstance(part, nn.Linear)]",
        "z = sum(v.sum() for v in (h, x))",
        "z = torch.where(h > 0, h, -h)",
        "z = torch.zeros(h.shape)",
        "if not (h.shape == x.shape): raise ValueError(f'bad {h}')",
        "if torch.is_complex(h) or h.is_xpu: h = h.real",
        "if h.device.type == 'cuda' and h.dtype is torch.half: h = h.float()",
        "rest = None\nif rest: h = h * rest",
    ],
)
def test_python_asks_for_nothing(facts_of, line):
    assert not list_asked(facts_of, line, "value") + list_asked(facts_of, line, "text")


def test_a_setting_of_a_forward_that_nothing_calls_is_not_taken_for_a_tensor(facts_of):
    text = START.replace("(self, x, scale=1.0", "(self, x, depth, scale=1.0")
    body = "        for i in range(depth): h = h + i\n        if depth > 3 and mode: h = -h\n        return h\n"

    assert not [read for read in facts_of(text + body).reads if read.where.function.endswith("forward")]


@pytest.mark.parametrize(
    "line", ["z = h[h > 0]", "m = (x > 0) & (h > 0)\nz = h[~m]", "m = torch.isnan(h)\nz = (h * 2)[m.view(-1)]"]
)
def test_a_mask_asks_for_a_new_shape(facts_of, line):
    assert list_asked(facts_of, line, "shape")


@pytest.mark.parametrize("line", ["h[h > 0] = 0", "z = h[:, 0]", "z = h[x.argmax(1)]", "z = (h > 0)[0]"])
def test_an_index_that_is_no_mask_asks_for_no_new_shape(facts_of, line):
    assert not list_asked(facts_of, line, "shape")


def test_a_tensor_that_takes_the_result_is_not_asked(facts_of):
    assert list_asked(facts_of, "z = torch.arange(0, 4, out=h)", "value") == []
