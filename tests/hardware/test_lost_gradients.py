"""What would change gradients on the host, and is lost on IPUs, is an error on the hardware path."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from porting import to_ipu
from tests.hardware.side_by_side import assert_code, one_batch, port, sgd


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Custom(nn.Linear):
    def forward(self, x):
        return Tripled.apply(super().forward(x))  # the line


tripled = Tripled.apply


class Bound(nn.Linear):
    def forward(self, x):
        return tripled(super().forward(x))  # the line


class Hooked(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        h.register_hook(lambda gradient: gradient * 5)  # the line
        return h


class Differentiating(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        (slope,) = torch.autograd.grad(h.sum(), self.weight, create_graph=True)  # the line
        return h + slope.sum()


class HookingModule(nn.Linear):
    def forward(self, x):
        self.register_full_backward_hook(lambda module, gradients, _outputs: gradients)
        return super().forward(x)


def call(model, **options):
    return port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), **options)(*one_batch())


@pytest.mark.parametrize(
    ("code", "kind"), [("C005", Custom), ("C005", Bound), ("C007", Hooked), ("C007", Differentiating)]
)
def test_a_gradient_that_would_be_lost_is_an_error_with_the_line(code, kind):
    error = assert_code(code, lambda: call(kind(4, 3)))

    assert "# the line" in str(error)


@pytest.mark.parametrize("is_early", [True, False], ids=["before", "in forward"])
def test_a_backward_hook_of_a_module_is_an_error_with_its_name(is_early):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3) if is_early else HookingModule(4, 3))
    if is_early:
        model[1].register_full_backward_hook(lambda module, gradients, _outputs: gradients)

    error = assert_code("C007", lambda: call(model))

    assert "the module `1`" in str(error)


@pytest.mark.parametrize(
    "ask",
    [
        lambda call, x: torch.autograd.grad(call(x).sum(), x, create_graph=True),
        lambda call, x: torch.autograd.functional.jacobian(call, x, vectorize=True),
        lambda call, x: torch.func.grad(lambda x: call(x).sum())(x),
    ],
)
def test_derivatives_that_the_device_does_not_compute_are_an_error_in_a_loop_on_the_host(ask):
    ported, x = to_ipu(nn.Linear(4, 1), loop="host"), torch.ones(6, 4, requires_grad=True)

    error = assert_code("L015", lambda: ask(ported, x))

    assert "test_lost_gradients.py" in str(error)
    ask(ported.model, x)


def warnings_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(warning.message) for warning in caught]


def test_what_changes_after_compilation_is_said_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))
    ported(*one_batch())
    model[0].requires_grad_(False)
    model[1].weight.register_hook(lambda gradient: gradient * 2)

    assert ["D005" in text for text in warnings_of(lambda: ported(*one_batch()))] == [True, True]
    assert warnings_of(lambda: ported(*one_batch())) == []


def test_clipping_on_the_host_is_said_once():
    model = nn.Linear(4, 3)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))
    ported(*one_batch())

    (text,) = warnings_of(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))

    assert "O007" in text
    assert "max_grad_norm" in text
    assert warnings_of(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)) == []


@pytest.mark.parametrize("wrap", [lambda ported: nn.DataParallel(ported)(*one_batch()), torch.compile])
def test_a_wrapper_for_modules_is_an_error(wrap):
    model = nn.Linear(4, 3)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))

    assert_code("D003", lambda: wrap(ported))


def test_a_custom_function_may_be_allowed():
    call(Custom(4, 3), allow=["custom-autograd-function"])


@pytest.mark.parametrize("kind", [Custom, Hooked])
def test_inference_has_no_gradients_to_lose(kind):
    model = kind(4, 3)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))

    assert ported.inference()(one_batch()[0]).shape[1] == 3


def test_custom_functions_and_hooks_of_the_host_are_themselves_again_afterwards():
    assert_code("C005", lambda: call(Custom(4, 3)))
    x = torch.ones(2, requires_grad=True)

    Tripled.apply(x).sum().backward()

    assert x.grad.tolist() == [3.0, 3.0]
