"""Objects of dataclasses come back from PopTorch's front end, which looks into them only where it is told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.hardware.side_by_side import one_batch, port, sgd


@dataclass(frozen=True)
class Inner:
    logits: torch.Tensor
    note: str = "made by the model"


@dataclass
class Output:
    inner: Inner
    parts: Any
    loss: Any = None


class Net(nn.Linear):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(4, 3)

    def forward(self, x, y=None):
        logits = super().forward(x)
        return Output(Inner(logits), [logits.sum(1)], None if y is None else cross_entropy(logits, y))


@pytest.mark.parametrize("is_given", [False, True])
def test_an_object_of_a_dataclass_comes_back_from_training(is_given):
    model, (x, y) = Net(), one_batch()
    expected = model(x, y)
    loss = (lambda output, label: cross_entropy(output.inner.logits, label)) if is_given else None
    ported = port(model, loss, optimizer=sgd(model), micro_batch=8)

    returned = ported(x, y)

    output = returned[0] if is_given else returned
    assert (type(output), type(output.inner), output.inner.note) == (Output, Inner, "made by the model")
    torch.testing.assert_close(output.inner.logits, expected.inner.logits)
    torch.testing.assert_close(output.parts[0], expected.parts[0])
    torch.testing.assert_close(returned[1] if is_given else output.loss, expected.loss)


def test_an_object_of_a_dataclass_comes_back_from_inference():
    model, (x, _y) = Net(), one_batch()
    expected = model(x)
    ported = port(model, None, optimizer=sgd(model), micro_batch=8)

    torch.testing.assert_close(ported.inference()(x).inner.logits, expected.inner.logits)
