"""Gradient paths lead from trainable parameters to the loss, through writes and views too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step

X = torch.rand(5, 4)


GRADIENTS = {
    "a product": (lambda w, x: w * x, True),
    "detach": (lambda w, x: w.detach() * x, False),
    "data": (lambda w, x: w.data * x, False),
    "no_grad": (torch.no_grad()(lambda w, x: w * x), False),
    "no_grad beside a path": (lambda w, x: w + torch.no_grad()(lambda: w * x)(), True),
    "enable_grad inside no_grad": (torch.no_grad()(torch.enable_grad()(lambda w, x: w * x)), True),
    "straight through": (lambda w, x: w + (w.round() - w).detach() + x, True),
    "inputs alone": (lambda w, x: x * 2, False),
    "integers": (lambda w, x: w.argmax(1, keepdim=True) * x, False),
    "a write of a tracked value": (lambda w, x: (x * 1).copy_(w), True),
    "a write of an untracked value": (lambda w, x: (x * 1).copy_(w.detach()), False),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "has_gradient"), GRADIENTS.values(), ids=GRADIENTS.keys())
def test_the_gradient_path_to_the_loss_is_known(trace, function, has_gradient):
    graph = trace(lambda w, x: F.l1_loss(function(w, x), x), X, mode="training")

    assert graph.loss_has_gradient is has_gradient


def test_a_write_through_a_view_brings_the_path_to_the_whole(trace):
    def write(w, x):
        y = x * 1
        y[0] = w[0]
        return F.l1_loss(y, x)

    graph = trace(write, X, mode="training")

    assert graph.loss_has_gradient


def test_frozen_parameters_begin_no_path():
    model = nn.Linear(4, 4).requires_grad_(False)

    graph = capture_step(model, [X, X], loss=F.mse_loss)

    assert not graph.loss_has_gradient
    assert not any(info.requires_grad for info in graph.parameters)


def test_requires_grad_can_be_asked_for_inside_forward(trace):
    seen = []

    def look(w, x):
        seen.extend([w.requires_grad, x.requires_grad, (w * x).requires_grad, w.detach().requires_grad])
        return F.l1_loss(w, x)

    trace(look, X, mode="training")

    assert seen == [True, False, True, False]


@pytest.mark.parametrize("write", [lambda w: w.add_(1), lambda w: w[1:].zero_(), lambda w: torch.relu_(w)])
def test_writing_to_a_trained_parameter_is_refused_in_torch_s_words(trace, write):
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        trace(lambda weight: F.mse_loss(write(weight), weight), mode="training")
