"""Bodies of loops and branches as graphs of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting.capture import capture_step
from porting.capture.subgraphs import bodies_of
from porting.diagnostics import CaptureError


class Model(nn.Module):
    """A module with a parameter, a buffer and a function of both."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.zeros(2))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def capture(function):
    return capture_step(Model(function), [torch.ones(2)], mode="inference")


def kinds(graph):
    return [node.meta["kind"] for node in graph.nodes if node.op == "placeholder"]


def test_a_loop_is_one_operator_with_a_body():
    graph = capture(lambda model, x: poptorch.for_loop(3, lambda v: v * model.weight + x, [x]))

    loop = graph.operators[-1]

    assert loop.operator == "run_for_loop"
    assert loop.shapes == ((2,),)
    assert loop.place is not None
    (body,) = bodies_of(loop.node)
    assert kinds(body.graph) == ["input", "captured", "captured"]
    assert "Body" in repr(body)


def test_what_a_body_reads_twice_is_one_argument():
    graph = capture(lambda model, x: poptorch.for_loop(3, lambda v: v * model.weight + model.weight, [x]))

    (body,) = bodies_of(graph.operators[-1].node)

    assert kinds(body.graph) == ["input", "captured"]


def test_what_an_inner_body_reads_is_an_argument_of_the_outer_one():
    def forward(model, x):
        return poptorch.for_loop(2, lambda v: poptorch.for_loop(2, lambda w: w * model.weight, [v]), [x])

    (outer,) = bodies_of(capture(forward).operators[-1].node)
    (inner,) = [body for node in outer.graph.nodes for body in bodies_of(node)]

    assert kinds(outer.graph) == ["input", "captured"]
    assert kinds(inner.graph) == ["input", "captured"]


def test_a_branch_has_two_bodies():
    graph = capture(lambda _, x: poptorch.cond(x.sum() > 0, lambda a: a + 1, [x], lambda a: a, [x]))

    assert graph.operators[-1].operator == "run_cond"
    assert len(bodies_of(graph.operators[-1].node)) == 2


def test_constants_of_a_body_are_constants_of_the_step():
    def body(v):
        return v + torch.tensor([1.0, 2.0])

    graph = capture(lambda _, x: poptorch.for_loop(2, body, [x]))

    assert [value.tolist() for value in graph.constant_values] == [[1, 2]]


def test_random_operators_are_found_in_bodies():
    assert capture(lambda _, x: poptorch.for_loop(2, lambda v: torch.rand_like(v), [x])).is_random
    assert not capture(lambda _, x: poptorch.for_loop(2, lambda v: v + 1, [x])).is_random


def test_a_branch_that_writes_to_a_buffer_writes_to_a_copy():
    graph = capture(lambda model, x: poptorch.cond(x.sum() > 0, lambda: model.count.add_(1), [], lambda: x, []))

    then_body, _ = bodies_of(graph.operators[-1].node)

    assert graph.mutated_buffers == frozenset()
    assert [node.target for node in then_body.graph.nodes if node.op == "call_function"][0] is (
        torch.ops.aten.clone.default
    )


def test_writes_to_inputs_of_a_body_are_its_own():
    graph = capture(lambda _, x: poptorch.for_loop(2, lambda v: v.add_(1), [x]))

    assert graph.mutated_inputs == frozenset()


def refusal(function):
    with pytest.raises(CaptureError) as caught:
        capture(function)
    return caught.value.finding


def test_writing_out_of_a_loop_is_refused_with_its_line():
    finding = refusal(lambda model, x: poptorch.for_loop(2, lambda v: model.count.add_(v), [x]))

    assert finding.code == "C018"
    assert finding.place is not None


def test_a_tensor_of_a_body_does_not_outlive_it():
    kept = []

    def forward(_, x):
        poptorch.for_loop(2, lambda v: kept.append(v + 1) or v, [x])
        return kept[0] * 2

    assert refusal(forward).code == "C018"


def test_a_tensor_of_one_branch_is_not_seen_by_the_other():
    kept = []

    def forward(_, x):
        return poptorch.cond(x.sum() > 0, lambda a: kept.append(a * 2) or a, [x], lambda a: kept[0] + a, [x])

    assert refusal(forward).code == "C018"


def test_a_body_that_is_never_ended_is_refused():
    assert refusal(lambda _, x: torch.ops.poptorch.start_for_loop([x]) or x).code == "C018"
