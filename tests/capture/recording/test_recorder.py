"""How operators become nodes of the graph, which are refused, and what is known of gradients and in-place writes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.diagnostics import CaptureError

X = torch.rand(5, 4)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad


DYNAMIC = {
    "nonzero": lambda w: w.nonzero(),
    "mask": lambda w: w[w > 0],
    "where": lambda w: torch.where(w > 0),
    "masked_select": lambda w: w.masked_select(w > 0),
    "unique": lambda w: w.unique(),
    "unique_consecutive": lambda w: torch.unique_consecutive(w),
    "bincount": lambda w: torch.bincount(w[0].int()),
    "one_hot": lambda w: F.one_hot(w[0].int()),
    "repeat_interleave": lambda w: w.repeat_interleave(w[:, 0].int(), 0),
}


def names(graph):
    return [op.operator for op in graph.operators]


@pytest.mark.parametrize("function", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_shapes_that_depend_on_values_are_refused_at_their_line(refusal, function):
    finding = refusal(function)

    assert finding.code == "C002"
    assert (finding.place.file, finding.place.line) == (__file__, function.__code__.co_firstlineno)
    assert finding.help


def test_a_boolean_mask_is_told_to_use_where(refusal):
    finding = refusal(DYNAMIC["mask"])

    assert "torch.where(mask, x, 0)" in finding.help[0]


def test_writing_through_a_mask_keeps_the_shape(trace):
    def blank(w):
        y = w * 2
        y[y > 0] = 1.0
        return y

    graph = trace(blank)

    assert graph.outputs[0].shape == (5, 4)


def test_exceptions_of_the_user_come_through_unchanged(trace):
    error = ValueError("mine")

    def fail(_weight):
        raise error

    with pytest.raises(ValueError, match="mine") as caught:
        trace(fail)

    assert caught.value is error


def test_a_custom_autograd_function_is_refused_in_training(refusal):
    finding = refusal(lambda w: F.l1_loss(Doubled.apply(w), w), mode="training")

    assert finding.code == "C005"
    assert "`Doubled`" in finding.message
    assert "detach()" in finding.help[0]


def test_a_custom_autograd_function_runs_forward_in_inference(trace):
    graph = trace(lambda w: Doubled.apply(w))

    assert names(graph) == ["aten.mul.Tensor"]


@pytest.mark.parametrize(
    "function",
    [
        lambda w: torch.fft.rfft(w),
        lambda w: w.to(torch.complex64),
        lambda w: torch.complex(w, w),
        lambda w: torch.zeros(3, dtype=torch.complex64),
        lambda w: w.to_sparse(),
    ],
)
def test_types_that_the_device_lacks_are_refused_where_they_arise(refusal, function):
    finding = refusal(function)

    assert finding.code == "C012"
    assert finding.place.line == function.__code__.co_firstlineno


def test_a_spectrum_is_told_to_use_real_numbers(refusal):
    finding = refusal(lambda w: torch.fft.rfft(w))

    assert finding.code == "C012"
    assert "real numbers" in finding.help[0]


@pytest.mark.parametrize(
    "function",
    [lambda w: (w * 2).resize_(4, 5), lambda w: (w * 2).as_strided_((2,), (1,))],
)
def test_changing_a_shape_in_place_is_refused(refusal, function):
    finding = refusal(function)

    assert finding.code == "C015"
    assert "returns a new tensor" in finding.help[0]


def test_a_tensor_from_an_earlier_capture_is_refused_in_the_next(trace, refusal):
    leaked = []
    trace(lambda w: (leaked.append(w * 2), w * 3)[1])

    finding = refusal(lambda w: w + leaked[0])

    assert finding.code == "C014"


def test_a_tensor_from_a_finished_capture_cannot_be_computed_with(trace):
    leaked = []
    trace(lambda w: (leaked.append(w * 2), w * 3)[1])

    with pytest.raises(CaptureError) as caught:
        leaked[0] + 1

    assert caught.value.code == "C014"
    assert caught.value.finding.place.file == __file__


def test_autocast_is_refused(refusal):
    def cast(w):
        with torch.autocast("cpu"):
            return w @ w.T

    finding = refusal(cast)

    assert finding.code == "P001"


def test_switching_gradients_off_is_part_of_a_training_graph(trace):
    graph = trace(lambda w, x: F.l1_loss(w + torch.no_grad()(lambda: w * x)(), x), X, mode="training")

    switches = [node.args[0] for node in graph.graph.nodes if node.target is torch._C._set_grad_enabled]
    assert switches == [False, True]


def test_inference_graphs_never_switch_gradients(trace):
    graph = trace(lambda w, x: w + torch.no_grad()(lambda: w * x)(), X)

    assert names(graph) == ["aten.mul.Tensor", "aten.add.Tensor"]
    assert not any(node.target is torch._C._set_grad_enabled for node in graph.graph.nodes)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x[1:3].zero_(),
        lambda x: x.view(-1)[:2].fill_(3),
        lambda x: x.t().mul_(2),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.__setitem__(x > 0, 1.0),
    ],
)
def test_writing_to_an_input_is_known_whatever_the_view(trace, write):
    graph = trace(lambda w, a, x: (write(x), w * a * x)[1], X, X.clone())

    assert graph.mutated_inputs == {1}


def test_writing_to_a_temporary_writes_to_no_input(trace):
    graph = trace(lambda w, x: (x * 1).add_(w), X)

    assert graph.mutated_inputs == set()


def test_writing_to_an_input_does_not_change_the_example(trace):
    x = torch.ones(5, 4)

    trace(lambda w, x: x.add_(w), x)

    assert torch.equal(x, torch.ones(5, 4))


def test_writing_to_a_parameter_without_gradients_is_part_of_the_graph(trace):
    def forward(weight, x):
        with torch.no_grad():
            weight.clamp_(-1, 1)
        return F.mse_loss(weight, x)

    assert trace(forward, torch.ones(5, 4), mode="training").mutated_parameters == {"weight"}


def test_an_in_place_operator_hands_back_its_argument(trace):
    seen = []

    def write(w, x):
        seen.append(x.add_(w) is x)
        return x

    trace(write, X)

    assert seen == [True]


def test_a_constant_that_is_written_to_is_copied_first(trace):
    graph = trace(lambda w: torch.tensor([1.0, 2.0, 3.0, 4.0]).add_(w[0]))

    assert names(graph)[0] == "aten.clone.default"


def test_a_layer_is_one_operator():
    graph = capture_step(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), [X], mode="inference")

    assert names(graph) == ["aten.linear.default", "aten.relu.default"]


def test_operators_of_several_results_describe_them_all(trace):
    graph = trace(lambda w: w.max(1))

    assert graph.operators[0].shapes == ((5,), (5,))
    assert [info.dtype for info in graph.outputs] == [torch.float32, torch.int32]


def test_transforms_of_torch_func_are_taken_apart_into_operators(trace):
    graph = trace(lambda w: torch.func.vmap(lambda row: row * 2)(w))

    assert graph.outputs[0].shape == (5, 4)
    assert all(name.startswith("aten.") for name in names(graph))


def test_an_error_inside_a_transform_says_so(refusal):
    finding = refusal(lambda w: torch.func.vmap(lambda row: row + torch.ones(4, device="cpu"))(w))

    assert any("torch.func" in note for note in finding.notes)


def test_random_operators_are_known(trace):
    assert trace(lambda w: F.dropout(w)).is_random
    assert not trace(lambda w: F.relu(w)).is_random
