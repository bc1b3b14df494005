"""The reference's casts: what is multiplied is half, what is trained stays single, and all is undone afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.verify.half_casts import cast, weights_cast_to

HALF = torch.bfloat16


def test_whole_numbers_are_not_cast():
    floats, whole, name = cast((torch.ones(2), torch.arange(2), "name"), HALF)

    assert (floats.dtype, whole.dtype, name) == (HALF, torch.int64, "name")


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.Linear(4, 3), (torch.ones(2, 4),)),
        (nn.Conv2d(1, 2, 3), (torch.ones(1, 1, 5, 5),)),
        (nn.Bilinear(2, 2, 3), (torch.ones(1, 2), torch.ones(1, 2))),
        (nn.LSTM(4, 3, batch_first=True), (torch.ones(2, 5, 4),)),
        (nn.GRUCell(4, 3), (torch.ones(2, 4),)),
        (nn.MultiheadAttention(4, 2), (torch.ones(3, 1, 4),) * 3),
        (nn.Embedding(5, 3), (torch.tensor([1, 2]),)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_results_are_half_and_gradients_reach_the_weights(module, inputs):
    before = {name: (weight, weight.clone()) for name, weight in module.named_parameters()}

    with weights_cast_to(module, HALF):
        output = module(*inputs)
        output = output[0] if isinstance(output, tuple) else output
    output.float().sum().backward()

    assert output.dtype is HALF
    for name, weight in module.named_parameters():
        assert weight is before[name][0]
        assert torch.equal(weight, before[name][1])
        assert weight.grad.dtype is torch.float32


def test_a_weight_of_two_modules_is_cast_once():
    table = nn.Embedding(5, 3)
    head = nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    model = nn.Sequential(table, head)

    with weights_cast_to(model, HALF):
        assert head._parameters["weight"] is table._parameters["weight"]
        model(torch.tensor([1])).float().sum().backward()

    assert table.weight.grad is head.weight.grad
    assert table.weight.grad.abs().sum() > 0


def test_an_error_leaves_the_weights_where_they_were():
    model = nn.Linear(2, 2)
    weight = model.weight

    with pytest.raises(ValueError, match="stop"), weights_cast_to(model, HALF):
        raise ValueError("stop")

    assert model.weight is weight
    assert model(torch.ones(1, 2)).dtype is torch.float32
