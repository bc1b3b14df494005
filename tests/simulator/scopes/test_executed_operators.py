"""Which operators of a graph the device executes, and which of them back-propagation visits."""

from __future__ import annotations

import torch
from torch import nn

import porting.simulator as simulator
from porting.capture import capture_step
from porting.engines.recompute.values_for_backward import collect_nodes_with_gradient, list_trained_parameters
from porting.simulator._scopes.executed_operators import (
    is_convolution,
    label_operator,
    list_executed_operators,
    list_results,
)


class Traced(nn.Module):
    """Runs `body(self, x)` as its forward, with two layers."""

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.body(self, x)


def captured(body, mode="inference"):
    return capture_step(Traced(body), [torch.ones(1, 2)], mode=mode)


def executed(body):
    return [label_operator(node) for node in list_executed_operators(captured(body).graph)]


def trained(body):
    return list_trained_parameters(captured(body, mode="training"))


def loss_of(x):
    return simulator.identity_loss(x, reduction="sum")


def test_operators_on_tensors_are_executed():
    assert executed(lambda self, x: self.a(x) + 1) == ["linear", "add"]


def test_what_is_made_of_constants_is_not():
    assert executed(lambda self, x: x + torch.ones(2, device=x.device).cumsum(0)) == ["add"]


def test_random_numbers_are_executed():
    assert executed(lambda self, x: x + torch.rand(2, device=x.device)) == ["rand", "add"]


def test_what_is_read_of_a_constant_that_was_written_to_is_executed():
    def body(self, x):
        total = torch.zeros(2, device=x.device)
        total.add_(x[0])
        return total * 2

    assert executed(body) == ["select", "add_", "mul"]


def test_marks_and_the_unpacking_of_tuples_are_no_operators():
    def body(self, x):
        x = simulator.set_overlap_for_output(x, simulator.OverlapMode.NoOverlap)
        return x.max(0)[0]

    assert executed(body) == ["max"]


def test_an_operator_of_several_results_has_a_node_for_each():
    (node,) = list_executed_operators(captured(lambda self, x: x.max(0)).graph)

    assert [tuple(result.meta["val"].shape) for result in list_results(node)] == [(2,), (2,)]


def test_bodies_of_loops_are_executed_if_asked_for():
    graph = captured(lambda self, x: simulator.for_loop(2, lambda y: y.sin(), [x])[0]).graph

    assert "sin" not in [label_operator(node) for node in list_executed_operators(graph)]
    assert "sin" in [label_operator(node) for node in list_executed_operators(graph, with_bodies=True)]


def test_convolutions_are_told_from_other_operators():
    def body(self, x):
        return torch.conv1d(x[None], torch.ones(1, 1, 1, device=x.device)) + 1

    graph = captured(body).graph

    assert [label_operator(node) for node in list_executed_operators(graph) if is_convolution(node)] == ["conv1d"]


def test_parameters_on_the_way_to_the_loss_are_trained():
    assert trained(lambda self, x: loss_of(self.b(self.a(x)))) == ["a.weight", "b.weight"]


def test_parameters_off_the_way_to_the_loss_are_not():
    assert trained(lambda self, x: (self.b(x), loss_of(self.a(x)))) == ["a.weight"]


def test_no_gradient_passes_detach_and_no_grad():
    def body(self, x):
        with torch.no_grad():
            fixed = self.b(x)
        return loss_of(self.a(x) + self.b(x).detach() + fixed)

    assert trained(body) == ["a.weight"]


def test_gradients_pass_memory_that_is_written_to():
    def body(self, x):
        total = torch.zeros(1, 2, device=x.device)
        total[:, :1] = self.a(x)[:, :1]
        total += self.b(x)
        return loss_of(total * 2)

    assert trained(body) == ["a.weight", "b.weight"]


def test_inference_has_no_gradients():
    assert collect_nodes_with_gradient(captured(lambda self, x: loss_of(self.a(x)))) == set()
