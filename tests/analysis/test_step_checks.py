"""All checks of a step come together, and cost little."""

from __future__ import annotations

import torch
from torch import nn

from porting import models
from porting.analysis.step_checks import iter_step_faults
from porting.capture import capture_step
from porting.host_tensors import host_tensors
from tests.counted_calls import count_calls


class Faulty(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("wide", torch.tensor(2**40))

    def forward(self, x):
        x += self.wide % 3
        x = nn.functional.dropout(self.used(x), 0.5)
        return torch.lgamma(x.double())


def test_each_kind_of_fault_is_found():
    model = Faulty()
    graph = capture_step(model, [torch.rand(3, 4), torch.rand(3, 4)], loss=nn.functional.mse_loss)

    codes = [finding.code for finding in iter_step_faults(graph, model, host_tensors(model))]

    assert sorted(codes) == ["C017", "C042", "C043", "C044", "C045", "L020"]


def test_a_step_is_checked_within_its_allowance():
    family = models.load("gpt")
    model = family.build(family.DEFAULT)
    batch = family.example_batch(family.VARIANTS[family.DEFAULT], batch_size=1)
    graph = capture_step(model, batch, loss=family.loss)
    hosts = host_tensors(model)

    num_calls = count_calls(lambda: list(iter_step_faults(graph, model, hosts)))

    # 6 milliseconds of a processor of 2023
    assert num_calls < 300 * len(graph.operators)
