"""Double precision is noted where it enters a step and where it arises."""

from __future__ import annotations

import torch
from torch import nn

from porting.analysis.narrowed_values import iter_narrowed_values
from porting.capture import capture_step


def graph_of(forward, x):
    model = type("Made", (nn.Module,), {"forward": forward})()
    return capture_step(model, [x], mode="inference")


def test_single_precision_is_no_finding():
    assert not list(iter_narrowed_values(graph_of(lambda self, x: x * 2, torch.rand(3))))


def test_an_input_of_double_precision_is_named():
    (finding,) = iter_narrowed_values(graph_of(lambda self, x: x * 2, torch.rand(3, dtype=torch.float64)))

    assert "`input x`" in finding.message


def test_a_cast_is_told_at_its_line():
    def forward(self, x):
        return x.double() * 2

    (finding,) = iter_narrowed_values(graph_of(forward, torch.rand(3)))

    assert finding.place.line == forward.__code__.co_firstlineno + 1
