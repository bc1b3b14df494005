"""What tests ask of a substitute: the values and gradients of its operator, also in training on a device."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import nn

import porting

__all__ = ["ComputingLayer", "assert_same_gradients", "assert_same_values", "assert_trains_like_plain"]


class ComputingLayer(nn.Module):
    """A layer from 6 features to 5, on whose output `compute` works; a call returns the mean square of the result."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 5)
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self.layer(x)).pow(2).mean()


def assert_same_values(operator: Callable[..., Any], substitute: Callable[..., Any], *args: Any) -> None:
    """Compare the results, of equal shapes and types."""
    torch.testing.assert_close(substitute(*args), operator(*args))


def assert_same_gradients(operator: Callable[..., Any], substitute: Callable[..., Any], *args: torch.Tensor) -> None:
    """Compare the results, and the gradients of all arguments for a random gradient of the result."""
    expected, expected_gradients = _differentiate(operator, args)
    value, gradients = _differentiate(substitute, args)

    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-4)


def _differentiate(function: Callable[..., Any], args: Any) -> Any:
    leaves = [value.clone().requires_grad_() for value in args]
    result = function(*leaves)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(7)).to(result.dtype)
    gradients = torch.autograd.grad((result * weights).sum(), leaves, allow_unused=True)
    # one that is not there is zero
    return result, [torch.zeros_like(leaf) if found is None else found for leaf, found in zip(leaves, gradients)]


def assert_trains_like_plain(make_model: Callable[[], nn.Module], *inputs: torch.Tensor) -> None:
    """Compare losses and weights of three steps with plain PyTorch's; something has to be computed by others."""
    plain, model = make_model(), make_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    expected = []
    for _step in range(3):
        optimizer.zero_grad()
        loss = plain(*inputs)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    ported = porting.to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")
    losses = [float(ported(*inputs)) for _step in range(3)]

    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-6)
    weights = {name: value.cpu() for name, value in ported.state_dict().items()}
    torch.testing.assert_close(weights, dict(plain.state_dict()), rtol=1e-4, atol=1e-5)
    assert "C025" in {finding.code for finding in ported.report().findings}
