"""Operators that turn a tensor's shape in place, and indices that are written into `out=`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

X = torch.arange(12.0).reshape(3, 4) % 5

TURNED = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "squeeze_ of all": lambda x: x.unsqueeze_(0).unsqueeze_(-1).squeeze_(),
}
INDEXED = {
    "sort": lambda x: torch.sort(x, 1, out=(torch.empty(3, 4), torch.empty(3, 4, dtype=torch.long))),
    "topk": lambda x: torch.topk(x, 2, out=(torch.empty(3, 2), torch.empty(3, 2, dtype=torch.long))),
    "max": lambda x: torch.max(x, 1, out=(torch.empty(3), torch.empty(3, dtype=torch.long))),
    "argmax": lambda x: [torch.argmax(x, 1, out=torch.empty(3, dtype=torch.long))],
}


def on_device(poptorch, function, *inputs):
    model = nn.Module()
    model.forward = function
    return poptorch.inferenceModel(model)(*inputs)


@pytest.mark.parametrize("name", TURNED)
def test_a_turned_tensor_has_its_new_shape_and_values(poptorch, name):
    shapes = []

    def forward(x):
        x = x.clone()
        TURNED[name](x)
        shapes.append(x.shape)
        return x + 1

    expected = TURNED[name](X.clone()) + 1

    assert torch.equal(on_device(poptorch, forward, X), expected)
    assert shapes == [expected.shape]


def test_a_turned_tensor_is_the_same_memory(poptorch):
    def forward(x):
        base = x.clone()
        turned = base.view(3, 4)
        turned.t_()[0].zero_()
        return base

    assert on_device(poptorch, forward, X).tolist() == torch.where(torch.arange(4) == 0, 0.0, X).tolist()


def test_gradients_reach_through_a_turned_tensor(poptorch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 4))

        def forward(self, x):
            turned = (self.weight * 1).t_()
            return poptorch.identity_loss((turned * x).sum(), "none")

    model = Model()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor(X.t().contiguous())
    executor.copyWeightsToHost()

    assert torch.equal(model.weight.detach(), -X)


@pytest.mark.parametrize("name", INDEXED)
def test_indices_are_written_into_what_is_given(poptorch, name):
    results = on_device(poptorch, lambda x: tuple(INDEXED[name](x)), X)

    for result, expected in zip(results, INDEXED[name](X)):
        assert torch.equal(result, expected.to(result.dtype))
    assert results[-1].dtype == torch.int32


def test_numbers_are_made_in_what_is_given(poptorch):
    result = on_device(poptorch, lambda x: torch.arange(4, out=torch.empty(4)) + x, X)

    assert torch.equal(result, X + torch.arange(4))
