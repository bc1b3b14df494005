"""Annotations change no value, reach the graph, and check their arguments."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import nn

from porting.capture import capture_step


class Function(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


class Pair(NamedTuple):
    """Two tensors."""

    first: torch.Tensor
    second: torch.Tensor


def transparent(poptorch):
    """List functions of a tensor that return its value, with the operator that is in the graph for each."""
    return {
        "nop": poptorch.nop,
        "recomputation_checkpoint": poptorch.recomputationCheckpoint,
        "set_available_memory": lambda x: poptorch.set_available_memory(x, 0.3),
        "set_overlap_for_input": lambda x: poptorch.set_overlap_for_input(x, poptorch.OverlapMode.NoOverlap),
        "set_overlap_for_output": lambda x: poptorch.set_overlap_for_output(x, poptorch.OverlapMode.NoOverlap),
        "ipu_print_tensor": poptorch.ipu_print_tensor,
    }


NAMES = [
    "nop",
    "recomputation_checkpoint",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "ipu_print_tensor",
]


@pytest.mark.parametrize("name", NAMES)
def test_values_pass_unchanged_on_both_sides(poptorch, name):
    model = Function(transparent(poptorch)[name])
    x = torch.randn(2, 3)

    result = poptorch.inferenceModel(model)(x)

    torch.testing.assert_close(result, model.linear(x).detach())
    assert torch.equal(transparent(poptorch)[name](x), x)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_that_of_the_model_without(poptorch, name):
    annotated = Function(lambda y: poptorch.identity_loss(transparent(poptorch)[name](y) ** 2, "sum"))
    plain = Function(lambda y: poptorch.identity_loss(y**2, "sum"))
    plain.linear.load_state_dict(annotated.linear.state_dict())
    x = torch.randn(2, 3)

    for model in (annotated, plain):
        poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))(x)

    assert torch.equal(annotated.linear.weight, plain.linear.weight)


@pytest.mark.parametrize("name", NAMES)
def test_annotations_are_operators_of_the_graph(name):
    import porting.simulator as simulator

    graph = capture_step(Function(transparent(simulator)[name]), [torch.ones(2, 3)], mode="inference")

    assert [op.operator for op in graph.operators] == ["aten.linear.default", f"poptorch.{name}.default"]


def test_the_mode_of_an_overlap_is_in_the_graph():
    import porting.simulator as simulator

    def overlap(x):
        return simulator.set_overlap_for_output(x, simulator.OverlapMode.OverlapAccumulationLoop)

    graph = capture_step(Function(overlap), [torch.ones(2, 3)], mode="inference")

    assert graph.operators[-1].node.args[1] == "overlap_accumulation_loop"


def test_overlaps_take_nested_structures(poptorch):
    x, y = torch.ones(1), torch.zeros(2)
    structure = {"a": [x, (y, 3)], "b": Pair(x, y)}

    for function in (poptorch.set_overlap_for_input, poptorch.set_overlap_for_output):
        result = function(structure, poptorch.OverlapMode.OverlapDeviceIterationLoop)
        assert type(result["a"]) is list
        assert type(result["a"][1]) is tuple
        assert type(result["b"]) is Pair
        assert result["a"][1][1] == 3
        assert torch.equal(result["b"].second, y)


def test_checkpoints_keep_the_container(poptorch):
    x, y = torch.ones(1), torch.zeros(2)

    assert isinstance(poptorch.recomputationCheckpoint(x), torch.Tensor)
    assert type(poptorch.recomputationCheckpoint(x, y)) is tuple
    assert type(poptorch.recomputationCheckpoint([x, y])) is list
    assert type(poptorch.recomputationCheckpoint((x,))) is tuple
    assert type(poptorch.recomputationCheckpoint(Pair(x, y))) is Pair


@pytest.mark.parametrize("arguments", [(3,), (torch.ones(1), None), ([torch.ones(1), 2],)])
def test_checkpoints_are_for_tensors(poptorch, arguments):
    with pytest.raises(ValueError, match="All inputs must be tensors"):
        poptorch.recomputationCheckpoint(*arguments)


def test_available_memory_is_set_for_tensors(poptorch):
    with pytest.raises(poptorch.Error, match="You may only set available memory for torch.tensor values."):
        poptorch.set_available_memory([torch.ones(1)], 0.3)


@pytest.mark.parametrize("keep_precision", [True, False])
def test_a_serialised_product_is_a_product(poptorch, keep_precision):
    mode = poptorch.MatMulSerializationMode

    for each in (mode.InputChannels, mode.ReducingDim, mode.OutputChannels, mode.Disabled):
        model = Function(lambda y, each=each: poptorch.serializedMatMul(y, y.t(), each, 2, keep_precision))
        y = model.linear(torch.ones(2, 3)).detach()
        torch.testing.assert_close(poptorch.inferenceModel(model)(torch.ones(2, 3)), y @ y.t())


@pytest.mark.parametrize(("mode", "factor", "keep"), [("reducing_dim", 2, False), (None, 2.0, False), (None, 2, 1)])
def test_settings_of_a_serialised_product_are_checked(poptorch, mode, factor, keep):
    mode = mode or poptorch.MatMulSerializationMode.ReducingDim

    with pytest.raises(AssertionError):
        poptorch.serializedMatMul(torch.ones(2, 2), torch.ones(2, 2), mode, factor, keep)


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 6.0), ("mean", 2.0), ("none", [1.0, 2.0, 3.0])])
def test_an_identity_loss_is_its_reduction(poptorch, reduction, expected):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    loss = poptorch.identity_loss(x, reduction)
    loss.sum().backward()

    assert loss.tolist() == expected
    assert x.grad.sum().item() == pytest.approx(1.0 if reduction == "mean" else 3.0)


def test_other_reductions_are_refused(poptorch):
    with pytest.raises(AssertionError, match="Unsupported reduction type!"):
        poptorch.identity_loss(torch.ones(1), "max")
