"""A copy of the model is measured on the real batch, and the model itself does not change."""

from __future__ import annotations

import torch
from torch import nn

from porting.adapters.half_ranges import measure_step

X, Y = torch.rand(8, 4), torch.randint(3, (8,))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))


def test_outputs_and_gradients_are_those_of_plain_pytorch():
    own = model()
    output = own(X)
    nn.CrossEntropyLoss()(output, Y).backward()
    (gradient_of_logits,) = torch.autograd.grad(
        nn.CrossEntropyLoss()(copy := output.detach().requires_grad_(), Y), [copy]
    )

    last = {module.name: module for module in measure_step(model(), nn.CrossEntropyLoss(), ((X, Y), {}))}["2"]

    assert last.largest_value == float(output.detach().abs().max())
    parts = [gradient_of_logits, own[2].weight.grad, own[2].bias.grad]
    assert last.largest_gradient == max(float(part.abs().max()) for part in parts)
    assert last.smallest_gradient == min(float(part[part != 0].abs().min()) for part in parts)


def test_the_share_of_lost_gradients_is_measured():
    measured = measure_step(nn.Linear(4, 3), lambda out, y: nn.functional.cross_entropy(out, y) * 1e-9, ((X, Y), {}))

    assert measured[0].lost_gradients == 1.0


def test_the_model_is_as_before():
    own = model().half()

    measure_step(own, nn.CrossEntropyLoss(), ((X, Y), {}))

    assert own[0].weight.dtype == torch.float16
    assert own[0].weight.grad is None
    assert not own[0]._forward_hooks


def test_weights_without_values_are_not_measured():
    with torch.device("meta"):
        own = nn.Linear(4, 3)

    assert measure_step(own, nn.CrossEntropyLoss(), ((X, Y), {})) is None


def test_what_is_not_finite_counts_as_infinite():
    measured = measure_step(nn.Linear(4, 3), nn.CrossEntropyLoss(), ((X / 0, Y), {}))

    assert measured[0].largest_value == float("inf")
