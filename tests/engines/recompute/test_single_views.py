"""Views that torch makes several of at once may be written to on the device, in training too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

X = torch.arange(12.0).reshape(3, 4)


class Doubling(nn.Module):
    """Doubles all of several views of a product but the first."""

    def __init__(self, poptorch, divide):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))
        self.divide = divide
        self.mark_loss = poptorch.identity_loss

    def forward(self, x):
        product = x * self.weight
        for view in self.divide(product)[1:]:
            view *= 2
        return product, self.mark_loss(product, "sum")


@pytest.mark.parametrize(
    "divide",
    [
        lambda t: t.unbind(),
        lambda t: t.unbind(dim=-1),
        lambda t: t.chunk(2),
        lambda t: t.chunk(3, dim=1),
        lambda t: t.split(2),
        lambda t: t.split([1, 2], dim=0),
        lambda t: torch.split(t, [1, 1, 2], -1),
        lambda t: t.tensor_split(3, dim=1),
        lambda t: t.tensor_split((1, 2)),
        lambda t: t.split_with_sizes((3, 1), 1),
    ],
)
def test_each_view_may_be_written_to(poptorch, divide):
    factors = torch.full((3, 4), 2.0)
    divide(factors)[0].fill_(1.0)
    model = Doubling(poptorch, divide)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))

    product, _loss = executor(X)

    torch.testing.assert_close(product, X * factors)
    torch.testing.assert_close(1.0 - model.weight.detach(), X * factors)
