"""`check_backward` passes what is differentiated rightly, and names the element where a gradient is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import PortingError, check_backward, numerical_grad
from porting.remedies import Fallback, list_substitutes
from porting.remedies.operator_table import order_substitutes
from porting.simulator.custom_ops import find_custom_op, register_custom_op
from tests.remedies.operator_cases import FUNCTIONS


class Square(torch.autograd.Function):
    """x**2, whose gradient is a hundredth too large at one element."""

    @staticmethod
    def forward(context, x, wrong):
        context.save_for_backward(x)
        context.wrong = wrong
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        found = (2 * x * gradient).clone()
        if context.wrong is not None:
            found.view(-1)[context.wrong] *= 1.05
        return found, None


def fail(function, *args, code="V005", **settings):
    with pytest.raises(PortingError) as caught:
        check_backward(function, *args, **settings)
    assert caught.value.code == code
    return str(caught.value)


def draw(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(2)) + 0.5).to(dtype)


def test_numerical_gradients_are_the_derivative():
    x, y = draw(2, 3, dtype=torch.float64), draw(3, dtype=torch.float64)

    by_x, by_y = numerical_grad(lambda: (x * y).sin(), (x, y), torch.ones(2, 3))

    torch.testing.assert_close(by_x, (x * y).cos() * y, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(by_y, ((x * y).cos() * x).sum(0), rtol=1e-5, atol=1e-7)


def test_numerical_gradients_have_the_type_of_the_inputs_which_stay_as_they_are():
    x = draw(3)
    before = x.clone()

    (gradient,) = numerical_grad(lambda: [x * 2, x.long()], x, torch.ones(3))

    assert gradient.dtype == torch.float32
    assert torch.equal(x, before)


def test_numerical_gradients_of_a_transposed_tensor():
    x = draw(2, 3, dtype=torch.float64).t()

    (gradient,) = numerical_grad(lambda: x**2, x, torch.ones(3, 2))

    torch.testing.assert_close(gradient, 2 * x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (7,), (40, 50)])
def test_right_gradients_pass_in_every_type(shape, dtype):
    check = check_backward(lambda x: Square.apply(x, None).exp(), draw(*shape, dtype=dtype))

    assert check.worst <= 1.0
    assert check.num_elements + check.num_directions > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_wrong_element_is_named_with_both_values(dtype):
    text = fail(lambda x: Square.apply(x, 4), draw(2, 3, dtype=dtype), torch.ones(2, 3))

    wanted = 2 * float(draw(2, 3, dtype=dtype)[1, 1])
    assert "the gradient by input 0 is not the derivative" in text
    assert "at element (1, 1) the backward pass gives" in text
    assert f"differences give {wanted:.6g}" in text


def test_the_wrong_element_of_a_large_input_is_searched_for():
    text = fail(lambda x: Square.apply(x, 1234), draw(40, 50))

    assert "at element (24, 34)" in text


def test_a_wrong_factor_everywhere_in_half_is_found():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 3

        @staticmethod
        def backward(context, gradient):
            return gradient * 2.9

    assert "input 0" in fail(Scaled.apply, draw(1000, dtype=torch.float16))


def test_a_gradient_that_is_missing_is_named():
    assert "the backward pass gives no gradient" in fail(lambda x, y: x * y.detach(), [draw(3), draw(3)])


def test_parameters_are_checked_and_come_back():
    weight = draw(3, 2).requires_grad_()
    data = weight.data_ptr()

    check = check_backward(lambda x: x @ weight, draw(4, 3), params=[weight])

    assert check.num_elements == 18
    assert (weight.dtype, weight.data_ptr(), weight.grad) == (torch.float32, data, None)
    assert "parameter 0" in fail(lambda x: x @ (weight * 0.5 + weight.detach() * 0.5), draw(4, 3), params=[weight])


def test_a_module_is_checked_with_its_parameters_and_stays_as_it_is():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    check = check_backward(model, draw(20, 30))

    assert check.num_directions == 8
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_wrong_parameter_of_a_module_is_named():
    class Layer(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight, self.bias.detach())

    assert "the gradient by `bias`" in fail(Layer(3, 2), draw(4, 3))


def test_integers_and_what_is_excluded_are_not_differentiated():
    check = check_backward(
        lambda x, index, y: x[index] * y.detach(),
        [draw(5), torch.tensor([1, 2]), draw(2)],
        no_grads=[False, True, True],
    )

    assert check.num_elements == 5


def test_results_without_a_gradient_are_left_out():
    check_backward(lambda x: (x * 2, (x * x).detach()), draw(3), (torch.ones(3), None))


def test_what_is_written_in_place_and_drawn_is_checked():
    state = torch.get_rng_state()

    check_backward(lambda x: F.dropout(x.mul_(2.0), 0.5), draw(30))

    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("point", [0.0, 0.0003, -0.0007])
def test_a_kink_is_no_wrong_gradient(point):
    text = fail(torch.relu, torch.tensor([1.0, point]), torch.ones(2), code="V006")

    assert "element (1,)" in text


def test_kinks_are_looked_for_where_gradients_agree():
    x = torch.tensor([0.5, 0.0], dtype=torch.float64)

    def meet_in_the_middle(x):
        return torch.where(x > 0, 2 * x, 0 * x) * 0.5 + 0.5 * x.clamp(max=0).detach() * 0

    check_backward(torch.exp, torch.randn(9) * 3, detect_nondifferentiable=True)
    fail(meet_in_the_middle, x, code="V006", detect_nondifferentiable=True)
    with pytest.raises(PortingError, match="kink"):
        numerical_grad(lambda: x.abs(), x, torch.ones(2), detect_nondifferentiable=True)


def test_a_kink_of_a_large_input_is_found():
    x = draw(1000, dtype=torch.float64)
    x[17] = 0.0

    fail(torch.relu, x, code="V006")


def test_second_derivatives_are_checked():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(context, gradient):
            (x,) = context.saved_tensors
            return 3 * x.detach() ** 2 * gradient

    check_backward(lambda x: x**3, draw(4), double_backward=True)
    check_backward(Cube.apply, draw(4))
    assert "second derivative" in fail(Cube.apply, draw(4), double_backward=True)


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ((torch.tanh, torch.ones(3, dtype=torch.complex64)), {}, "complex64"),
        ((torch.tanh, torch.ones(3, dtype=torch.long)), {}, "nothing to differentiate"),
        ((torch.tanh, torch.ones(3)), {"no_grads": [True, True]}, "`no_grads` has 2 values for 1 inputs"),
        ((torch.tanh, torch.ones(3), torch.ones(2)), {}, "have the shapes"),
        ((lambda x: x > 0, torch.ones(3)), {}, "no floating-point tensor"),
        ((lambda x: x @ torch.ones(3, 2), torch.ones(2, 3)), {}, "cannot compute in float64"),
        ((torch.log, torch.zeros(1) + 1e-4), {}, "not finite"),
        ((torch.tanh, torch.full((1,), 1e6)), {"dtype": torch.float32, "eps": 1e-4}, "lost in the rounding"),
    ],
)
def test_what_cannot_be_checked_is_said(arguments, settings, words):
    assert words in fail(*arguments, code="V007", **settings)


# -- operators that a program or this package brings -------------------------------------------------------------------


def test_the_backward_of_a_custom_operator_is_checked():
    def forward(inputs, attributes):
        return torch.where(inputs[0] > 0, inputs[0], attributes["slope"] * inputs[0])

    def backward(inputs, outputs, gradients, attributes):
        return torch.where(inputs[0] > 0, gradients[0], attributes["factor"] * gradients[0])

    register_custom_op("Leaky", "test.gradient_check", forward=forward, backward=backward)
    operator = find_custom_op("Leaky", "test.gradient_check", 1)

    check_backward(lambda x: operator([x], {"slope": 0.1, "factor": 0.1}), draw(4) - 1.0)
    assert "input 0" in fail(lambda x: operator([x], {"slope": 0.1, "factor": 0.2}), draw(4) - 1.0)


def test_a_registered_substitute_is_checked():
    @porting.op(torch.special.bessel_j0)
    def first_terms(x):
        return 1 - x**2 / 4 + x**4 / 64

    check_backward(first_terms, draw(5))


class Substituted(torch.overrides.TorchFunctionMode):
    """Computes by the table of substitutes in plain PyTorch."""

    def __init__(self):
        super().__init__()
        self.used = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        for entry in order_substitutes(func):
            with self:
                found = entry.compute(*args, **(kwargs or {}))
            if found is not Fallback:
                self.used.append(entry.name)
                return found
        return func(*args, **(kwargs or {}))


# those of masked rows are no substitutes of one operator: they change what an index by a mask is
UNMASKED = [name for name in FUNCTIONS if not name.startswith("masked")]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNMASKED)
def test_substitutes_for_operators_are_differentiated_rightly(name):
    list_substitutes()
    mode = Substituted()
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(3))

    def compute(x):
        with mode:
            return FUNCTIONS[name](x)

    check_backward(compute, x, eps=1e-5)

    assert mode.used
