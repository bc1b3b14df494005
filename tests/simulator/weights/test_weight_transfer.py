"""Weights move when they are asked for, once, and only while there is a device."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def test_weights_that_are_up_to_date_are_not_fetched(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    assert [executor.copyWeightsToHostIfNeeded() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("move", ["copyWeightsToHost", "copyWeightsToDevice", "copyNamedBuffersToDevice"])
def test_nothing_moves_without_the_device(poptorch, move):
    executor = poptorch.inferenceModel(nn.Linear(1, 1))

    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        getattr(executor, move)()

    executor.compile(torch.ones(1, 1))
    executor.detachFromDevice()

    with pytest.raises(poptorch.Error, match="Device is not attached"):
        getattr(executor, move)()


def test_named_buffers_must_be_listed(poptorch):
    executor = poptorch.inferenceModel(nn.BatchNorm1d(1).eval())
    executor.compile(torch.ones(2, 1))

    with pytest.raises(poptorch.Error, match="No named buffers marked as updatable"):
        executor.copyNamedBuffersToDevice()
