"""Sums of products of matrices become single products, and stay what they were."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn

from porting.engines.compiled.joined_products import join_products
from porting.engines.compiled.step_tracing import make_fake_tensors, trace

aten = torch.ops.aten


def joined(function, *arguments):
    """Return the graph of `function` with its products joined, and what it computes of the arguments."""
    with make_fake_tensors() as mode:
        graph = trace(function, [mode.from_tensor(argument) for argument in arguments])
        join_products(graph)
    graph.lint()
    assert [node.op for node in graph.nodes][: len(arguments)] == ["placeholder"] * len(arguments)
    module = torch.fx.GraphModule(nn.Module(), graph)
    return graph, module(*(argument.clone() for argument in arguments))


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

    weights = [value.detach() for value in values.values()]
    graph, found = joined(compute, x, *weights)

    # five more products lead back from state to state; a bias had six sums of rows
    assert count(graph, aten.mm.default) == 5 + 2
    assert count(graph, aten.sum.dim_IntList) == 2
    for one, other in zip(found, compute(x, *weights)):
        torch.testing.assert_close(one, other)


def test_other_terms_of_a_sum_stay():
    one, two, penalty = random(4, 3), random(4, 5), random(3, 5)

    graph, found = joined(
        lambda a, b, c: torch.mm(a.t(), b) + c + torch.mm((a + 1).t(), b * 2) + 0.5 * c, one, two, penalty
    )

    assert count(graph, aten.mm.default) == 1
    torch.testing.assert_close(found, one.t() @ two + penalty + (one + 1).t() @ (two * 2) + 0.5 * penalty)


@pytest.mark.parametrize("turn", [lambda x: x, operator.methodcaller("t")])
@pytest.mark.parametrize("turn_result", [lambda x: x, operator.methodcaller("t")])
def test_factors_and_products_may_be_turned(turn, turn_result):
    left, right = turn(random(4, 3)).contiguous(), random(5, 4)

    def compute(a, b):
        def multiply(a, b):
            return turn_result(torch.mm(turn(a).t(), b.t()))

        return multiply(a, b) + multiply(a * 2, b - 1) + multiply(a * 3, b - 2)

    graph, found = joined(compute, left, right)

    assert count(graph, aten.mm.default) == 1
    torch.testing.assert_close(found, compute(left, right))


def test_arguments_themselves_may_be_factors():
    ones, twos = [random(4, 3), random(4, 3) * 2], [random(4, 5), random(4, 5) * 3]

    graph, found = joined(lambda a, b, c, d: torch.mm(a.t(), c) + torch.mm(b.t(), d), *ones, *twos)

    assert count(graph, aten.mm.default) == 1
    torch.testing.assert_close(found, ones[0].t() @ twos[0] + ones[1].t() @ twos[1])


def test_long_products_are_left_alone():
    one, two = random(4096, 3), random(4096, 5)

    graph, _found = joined(lambda a, b: torch.mm(a.t(), b) + torch.mm(a.t() * 2, b), one, two)

    assert count(graph, aten.mm.default) == 2


def test_a_factor_that_is_written_to_afterwards_is_left_alone():
    one, two = random(4, 3), random(4, 5)

    def compute(a, b):
        copy = a.clone()
        first = torch.mm(copy.t(), b)
        copy.mul_(3)
        return first + torch.mm(copy.t(), b)

    graph, found = joined(compute, one, two)

    assert count(graph, aten.mm.default) == 2
    torch.testing.assert_close(found, compute(one, two))


def test_what_is_used_elsewhere_is_computed():
    one, two = random(4, 3), random(4, 5)

    def compute(a, b):
        first = torch.mm(a.t(), b)
        return first + torch.mm(a.t(), b * 2), first * 2

    graph, found = joined(compute, one, two)

    assert count(graph, aten.mm.default) == 2
    for value, wanted in zip(found, compute(one, two)):
        torch.testing.assert_close(value, wanted)


def test_a_joined_sum_may_be_a_factor_of_the_next():
    one = random(3, 3)

    def compute(a):
        total = torch.mm(a, a) + torch.mm(a * 2, a)
        return torch.mm(total, a) + torch.mm(a, a + 1) + torch.mm(a + 2, a)

    graph, found = joined(compute, one)

    assert count(graph, aten.mm.default) == 3
    torch.testing.assert_close(found, compute(one))


def test_sums_with_a_factor_or_of_other_types_are_no_sums_of_products():
    one, two = random(4, 3), random(4, 5)

    graph, _found = joined(lambda a, b: torch.add(torch.mm(a.t(), b), torch.mm(a.t() * 2, b), alpha=2), one, two)

    assert count(graph, aten.mm.default) == 2
