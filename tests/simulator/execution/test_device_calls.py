"""What a call refuses, converts and leaves behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def test_inputs_must_be_on_the_cpu(poptorch):
    executor = poptorch.inferenceModel(nn.ReLU())
    executor.compile(torch.ones(2))

    with pytest.raises(poptorch.Error, match="Inputs must be on the CPU, got a tensor on meta"):
        executor(torch.ones(2, device="meta"))


def test_layouts_are_converted_and_that_is_said_once(poptorch, caplog):
    executor = poptorch.inferenceModel(nn.ReLU())

    results = [executor(torch.arange(6.0).reshape(2, 3).t()) for _ in range(2)]

    assert results[0].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert caplog.text.count("At least one input tensor is not contiguous") == 1


def test_inputs_that_require_a_gradient_get_none(poptorch):
    x = torch.ones(2, requires_grad=True)

    result = poptorch.inferenceModel(nn.Tanh())(x)

    assert not result.requires_grad
    assert x.grad is None


def test_a_run_that_fails_leaves_no_gradients_behind(poptorch):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(3, 2)

        def forward(self, index):
            return nn.functional.l1_loss(self.table(index), torch.zeros(1, 2, device=index.device))

    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(Looks(), options)
    executor.compile(torch.zeros(2, dtype=torch.long))

    with pytest.raises(IndexError):
        executor(torch.tensor([0, 9]))

    assert all(parameter.grad is None for parameter in executor._compiled.state.parameters.values())
