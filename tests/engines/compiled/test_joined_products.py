"""Sums of products of matrices become single products, and stay what they were."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from porting.engines.compiled import joined_products
from porting.engines.compiled.joined_products import join_products
from porting.engines.compiled.step_tracing import make_fake_tensors, trace

aten = torch.ops.aten


def joined(function, *arguments):
    """Return the graph of `function` with its products joined, which computes the same, in the same order in memory."""
    with make_fake_tensors() as mode:
        graph = trace(function, [mode.from_tensor(argument) for argument in arguments])
        join_products(graph)
    graph.lint()
    assert [node.op for node in graph.nodes][: len(arguments)] == ["placeholder"] * len(arguments)
    found = torch.fx.GraphModule(nn.Module(), graph)(*(argument.clone() for argument in arguments))
    wanted = function(*arguments)
    several = isinstance(wanted, tuple)
    for one, other in zip(found, wanted) if several else [(found, wanted)]:
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert one.stride() == other.stride()
    return graph


def count(graph, target):
    return sum(node.target is target for node in graph.nodes)


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


class Repeated(nn.Module):
    """A cell over time, whose inputs and states have weights and biases."""

    def __init__(self, num_steps):
        super().__init__()
        self.num_steps = num_steps
        self.of_input, self.of_state = nn.Linear(5, 7), nn.Linear(7, 7)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 7)
        for step in range(self.num_steps):
            state = torch.tanh(self.of_input(x[:, step]) + self.of_state(state))
        return state


def test_the_weights_of_a_cell_get_their_gradients_by_one_product_each():
    cell, x = Repeated(6), random(3, 6, 5)
    values = dict(cell.named_parameters())

    def compute(x, *weights):
        named = {name: weight.detach().requires_grad_() for name, weight in zip(values, weights)}
        loss = torch.func.functional_call(cell, named, (x,)).square().mean()
        return torch.autograd.grad(loss, list(named.values()))

    graph = joined(compute, x, *(value.detach() for value in values.values()))

    # five more products lead back from state to state; a bias had six sums of rows
    assert count(graph, aten.mm.default) == 5 + 2
    assert count(graph, aten.sum.dim_IntList) == 2


def add_up(multiply, num_terms=3):
    """Return the sum of a few products of factors that are different."""

    def compute(a, b):
        total = multiply(a, b)
        for number in range(1, num_terms):
            total = total + multiply(a + number, b * 2)
        return total

    return compute


def test_other_terms_of_a_sum_stay():
    compute = add_up(lambda a, b: torch.mm(a.t(), b) + 0.5)

    assert count(joined(compute, random(4, 3), random(4, 5)), aten.mm.default) == 3

    def add_penalty(a, b, c):
        return add_up(lambda a, b: torch.mm(a.t(), b))(a, b) + c + 0.5 * c

    assert count(joined(add_penalty, random(4, 3), random(4, 5), random(3, 5)), aten.mm.default) == 1


def keep(x):
    return x


@pytest.mark.parametrize("turn_left", [keep, torch.t])
@pytest.mark.parametrize("turn_right", [keep, torch.t])
@pytest.mark.parametrize("turn_result", [keep, torch.t])
@pytest.mark.parametrize("turn_total", [keep, torch.t])
def test_factors_products_and_sums_may_be_turned(turn_left, turn_right, turn_result, turn_total):
    left, right = turn_left(random(3, 4)).contiguous(), turn_right(random(4, 5)).contiguous()

    def multiply(a, b):
        return turn_result(torch.mm(turn_left(a), turn_right(b)))

    compute = add_up(multiply)

    graph = joined(lambda a, b: turn_total(compute(a, b)), left, right)

    assert count(graph, aten.mm.default) == 1


def test_terms_that_are_turned_differently_are_joined_apart():
    def compute(a, b):
        turned = add_up(lambda a, b: torch.mm(b.t(), a.t()).t())(a, b)
        return add_up(lambda a, b: torch.mm(a, b))(a, b) + turned

    assert count(joined(compute, random(3, 4), random(4, 5)), aten.mm.default) == 1

    def compute_squares(a, b):
        return add_up(lambda a, b: torch.mm(a, b))(a, b) + add_up(lambda a, b: torch.mm(a.t(), b.t()))(a, b)

    assert count(joined(compute_squares, random(4, 4), random(4, 4)), aten.mm.default) == 2


def test_what_is_viewed_afterwards_lies_in_memory_as_it_did():
    def compute(flat, x):
        weight = flat.detach().requires_grad_()
        used = weight.view(3, 5).t()
        loss = sum(torch.tanh(nn.functional.linear(x + number, used)).sum() for number in range(4))
        return torch.autograd.grad(loss, [weight])

    graph = joined(compute, random(15), random(4, 3))

    assert count(graph, aten.mm.default) <= 4 + 1


def test_arguments_themselves_may_be_factors():
    factors = [random(4, 3) * number for number in range(1, 4)] + [random(4, 5) * number for number in range(1, 4)]

    graph = joined(lambda a, b, c, d, e, f: torch.mm(a.t(), d) + torch.mm(b.t(), e) + torch.mm(c.t(), f), *factors)

    assert count(graph, aten.mm.default) == 1


@pytest.mark.parametrize(
    ("left", "right", "num_terms"),
    [((4096, 3), (4096, 5), 3), ((4, 3), (4, 5), 2)],
    ids=["long products", "two products"],
)
def test_what_would_gain_nothing_is_left_alone(left, right, num_terms):
    compute = add_up(lambda a, b: torch.mm(a.t(), b), num_terms)

    assert count(joined(compute, random(*left), random(*right)), aten.mm.default) == num_terms


def test_much_is_joined_in_parts(monkeypatch):
    monkeypatch.setattr(joined_products, "_MOST_NUMBERS", 5 * 4 * (3 + 5))
    compute = add_up(lambda a, b: torch.mm(a.t(), b), num_terms=13)

    # five and five, and three
    assert count(joined(compute, random(4, 3), random(4, 5)), aten.mm.default) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_rounded_product_by_product(dtype):
    compute = add_up(lambda a, b: torch.mm(a.t(), b))

    assert count(joined(compute, random(4, 3).to(dtype), random(4, 5).to(dtype)), aten.mm.default) == 3


@pytest.mark.parametrize("write", [lambda x: x.mul_(3), lambda x: x[0].zero_(), lambda x: torch._foreach_mul_([x], 3)])
def test_a_factor_that_is_written_to_afterwards_is_left_alone(write):
    def compute(a, b):
        copy = a.clone()
        total = torch.mm(copy.t(), b)
        write(copy)
        return total + torch.mm(copy.t(), b + 1) + torch.mm(copy.t(), b + 2)

    assert count(joined(compute, random(4, 3), random(4, 5)), aten.mm.default) == 3


def test_a_factor_that_was_written_to_before_is_as_good_as_another():
    compute = add_up(lambda a, b: torch.mm((a + 1).mul_(3).t(), b))

    assert count(joined(compute, random(4, 3), random(4, 5)), aten.mm.default) == 1


def test_what_is_used_elsewhere_is_computed():
    def compute(a, b):
        first = torch.mm(a.t(), b)
        return first + add_up(lambda a, b: torch.mm(a.t(), b))(a, b), first * 2

    assert count(joined(compute, random(4, 3), random(4, 5)), aten.mm.default) == 1 + 1


def test_a_joined_sum_may_be_a_factor_of_the_next():
    def compute(a, b):
        total = add_up(torch.mm)(a, b)
        return torch.mm(total, a) + torch.mm(a, total) + torch.mm(a + 2, total)

    assert count(joined(compute, random(3, 3), random(3, 3)), aten.mm.default) == 1 + 3


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.add(torch.mm(a, b), torch.mm(a + 1, b), alpha=2) + torch.mm(a, b + 1),
        lambda a, b: torch.mm(a, b) + torch.mm(a + 1, b)[:1] + torch.mm(a, b + 1),
        lambda a, b: torch.mm(a, b) + torch.mm(a + 1, b).double() + torch.mm(a, b + 1).double(),
    ],
    ids=["a factor", "rows that are expanded", "another type"],
)
def test_other_sums_are_left_alone(function):
    assert count(joined(function, random(3, 4), random(4, 5)), aten.mm.default) == 3


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 2)])
def test_sums_of_rows_that_no_product_put_together_stay(shape):
    compute = add_up(lambda a, b: (a * b).sum(0, keepdim=len(shape) == 2).view(shape))

    assert count(joined(compute, random(3, 4), random(3, 4)), aten.sum.dim_IntList) == 3


def test_matrices_without_rows_are_no_trouble():
    joined(add_up(torch.mm), random(0, 4), random(4, 5))
    joined(add_up(torch.mm), random(3, 0), random(0, 5))


def test_numbers_that_are_added_to_themselves_are_not_counted_one_by_one():
    def compute(a, b):
        total = torch.mm(a, b)
        for _level in range(40):
            total = total + total
        return total

    assert count(joined(compute, random(3, 4), random(4, 5)), aten.add.Tensor) == 40


@pytest.mark.slow
def test_a_sum_may_be_long():
    compute = add_up(torch.mm, num_terms=sys.getrecursionlimit() + 100)

    assert count(joined(compute, random(2, 2), random(2, 2)), aten.mm.default) == 1
