"""Custom autograd functions are intercepted by whatever name they are called, and are themselves again afterwards."""

from __future__ import annotations

import functools
import threading

import pytest
import torch

from porting.torch_insides.autograd import intercept_custom_functions


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class New(Old):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class WithItsOwnApply(Old):
    @classmethod
    def apply(cls, x):
        return super().apply(x)


FUNCTIONS = [Old, New, WithItsOwnApply]
# taken before anything is intercepted
WAYS = {
    "of the class": {function: lambda x, function=function: function.apply(x) for function in FUNCTIONS},
    "bound": {function: function.apply for function in FUNCTIONS},
    "in a partial": {function: functools.partial(function.apply) for function in FUNCTIONS},
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_a_function_is_intercepted_by_whatever_name_it_is_called(way, function):
    x = torch.ones(1, requires_grad=True)

    with intercept_custom_functions(lambda apply, function, args, kwargs: (function, args)):
        assert WAYS[way][function](x) == (function, (x,))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_what_torch_would_have_called_gives_value_and_gradient(way, function):
    x = torch.ones(1, requires_grad=True)

    with intercept_custom_functions(lambda apply, function, args, kwargs: apply(*args, **kwargs)):
        y = WAYS[way][function](x)
    y.backward()

    assert (y.item(), x.grad.item()) == (2.0, 3.0)


def test_a_function_under_a_transform_is_intercepted_too():
    x = torch.ones(1)

    with intercept_custom_functions(lambda apply, function, args, kwargs: args[0] * 5):
        assert torch.func.grad(lambda x: New.apply(x).sum())(x).item() == 5.0
        assert torch.func.grad(lambda x: WAYS["bound"][New](x).sum())(x).item() == 5.0

    assert torch.func.grad(lambda x: New.apply(x).sum())(x).item() == 3.0


def test_interceptions_lie_above_each_other_and_end_in_any_order():
    calls = []

    def note(name):
        def stand_in(apply, function, args, kwargs):
            calls.append(name)
            return apply(*args, **kwargs)

        return intercept_custom_functions(stand_in)

    inner, outer = note("inner"), note("outer")
    inner.__enter__()
    outer.__enter__()
    Old.apply(torch.ones(1))
    inner.__exit__(None, None, None)
    Old.apply(torch.ones(1))
    outer.__exit__(None, None, None)
    Old.apply(torch.ones(1))

    assert calls == ["outer", "inner", "outer"]


def test_other_threads_may_end_what_they_began_meanwhile():
    class_below = torch.autograd.Function.__mro__[1]

    def capture():
        for _ in range(50):
            with intercept_custom_functions(lambda apply, function, args, kwargs: apply(*args, **kwargs)):
                assert Old.apply(torch.ones(1)).item() == 2.0

    threads = [threading.Thread(target=capture) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "apply" not in vars(class_below)
