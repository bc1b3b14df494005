"""`capture_step`: what it returns and what it refuses."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step, find_losses, single_final_loss
from porting.diagnostics import CaptureError
from porting.simulator import identity_loss
from porting.structure import StructureAdapter, register_structure_adapter

Pair = namedtuple("Pair", "left right")
X = torch.rand(3, 4)
LABELS = torch.tensor([0, 1, 0])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        x = self.norm(x)
        return self.layers(x) * 2


def function(forward):
    """Make a module of `forward(self, ...)` without tensors of its own."""
    return type("Made", (nn.Module,), {"forward": forward})()


def inference(model, args=(), kwargs=None):
    return capture_step(model, args, kwargs, mode="inference")


def refused(model, args, **options):
    with pytest.raises(CaptureError) as caught:
        capture_step(model, args, **options)
    return caught.value.finding


def test_forward_runs_once():
    model = Classifier()

    capture_step(model, [X, LABELS], loss=F.cross_entropy)

    assert model.runs == 1


def test_placeholders_come_in_a_fixed_order():
    graph = inference(Classifier(), [X])

    entering = [info.name for group in (graph.parameters, graph.buffers, graph.inputs) for info in group]
    assert [node.meta["state_name"] for node in graph.placeholders] == entering


def test_inputs_are_named_after_the_parameters_of_forward():
    model = function(lambda self, a, b, *rest, scale: a + b + sum(rest) + scale)

    graph = inference(model, [X, X, X, X], {"scale": X})

    assert [info.name for info in graph.inputs] == ["a", "b", "input_2", "input_3", "scale"]


def test_nested_inputs_are_numbered():
    model = function(lambda self, a: a[0] + a[1]["k"])

    graph = inference(model, [(X, {"k": X})])

    assert [info.name for info in graph.inputs] == ["a_0", "a_1"]


def test_nested_inputs_reach_forward_as_they_were_nested():
    seen = []

    def forward(self, a, b):
        seen.append((type(a), type(a.right), sorted(b)))
        return a.left + a.right[0] + b["k"][0]

    inference(function(forward), [Pair(X, [X]), {"k": (X,), "n": 3}])

    assert seen == [(Pair, list, ["k", "n"])]


def test_nested_outputs_keep_their_nesting():
    model = function(lambda self, x: {"y": Pair(x + 1, [x + 2, 3]), "t": (x, None, "s")})

    structure = inference(model, [X]).output_structure

    assert list(structure) == ["y", "t"]
    assert type(structure["y"]) is Pair
    assert structure["y"].right[1] == 3
    assert structure["t"][1:] == (None, "s")


def test_outputs_are_listed_depth_first():
    model = function(lambda self, x: {"y": Pair(x[:1] + 1, [x[:2] + 2]), "t": (x + 3,)})

    graph = inference(model, [X])

    assert [info.shape for info in graph.outputs] == [(1, 4), (2, 4), (3, 4)]


def test_tensors_of_the_host_among_the_outputs_are_counted():
    host = torch.ones(2)

    graph = inference(function(lambda self, x: (x + 1, host)), [X])

    assert (len(graph.outputs), graph.host_outputs) == (1, 1)


def test_a_model_without_inputs_is_captured():
    graph = inference(function(lambda self: torch.zeros(2, device="ipu") + 1))

    assert graph.inputs == ()
    assert graph.outputs[0].shape == (2,)


@pytest.mark.parametrize(("flag", "operator"), [(True, "aten.relu.default"), (False, "aten.tanh.default")])
def test_other_values_are_baked_in(flag, operator):
    model = function(lambda self, x, flag, *, scale=1.0: (x.relu() if flag else x.tanh()) * scale)

    graph = inference(model, [X, flag], {"scale": 2.0})

    assert graph.operators[0].operator == operator
    assert graph.operators[1].node.args[1] == 2.0
    assert len(graph.inputs) == 1


def test_lazy_modules_are_given_their_parameters_first():
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d())

    graph = capture_step(model, [X, torch.zeros(3, 8)], loss=F.mse_loss)

    assert model[0].weight.shape == (8, 4)
    assert model.training
    assert torch.equal(model[1].running_mean, torch.zeros(8))
    assert graph.parameters[0].shape == (8, 4)


def test_the_statistics_of_batch_norm_are_known_to_change():
    graph = inference(Classifier(), [X])

    assert graph.mutated_buffers == {"norm.running_mean", "norm.running_var"}


def test_the_statistics_stay_in_eval_mode():
    graph = inference(Classifier().eval(), [X])

    assert graph.mutated_buffers == set()


def test_tied_weights_enter_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight

    graph = inference(model, [X])

    assert [(info.name, info.aliases) for info in graph.parameters] == [("0.weight", ("0.weight", "1.weight"))]
    assert [op.node.args[1].name for op in graph.operators] == [graph.placeholders[0].name] * 2


def test_a_shared_module_runs_as_often_as_it_is_called():
    layer = nn.Linear(4, 4)

    graph = inference(nn.Sequential(layer, layer), [X])

    assert [op.operator for op in graph.operators] == ["aten.linear.default"] * 2


def test_a_loss_gets_the_output_and_the_last_argument():
    graph = capture_step(nn.Linear(4, 2), [X, LABELS], loss=F.cross_entropy)

    assert graph.operators[-1].operator == "aten.cross_entropy_loss.default"
    assert [info.shape for info in graph.outputs] == [(3, 2), ()]
    assert graph.has_loss


def test_the_graph_ends_in_its_outputs_and_the_loss():
    graph = capture_step(nn.Linear(4, 2), [X, LABELS], loss=F.cross_entropy)

    (ending,) = [node for node in graph.graph.nodes if node.op == "output"]
    assert len(ending.args[0]) == len(graph.outputs) + 1
    assert ending.args[0][-1] is graph.operators[-1].node


def test_an_inference_graph_ends_in_its_outputs_alone():
    graph = inference(nn.Linear(4, 2), [X])

    (ending,) = [node for node in graph.graph.nodes if node.op == "output"]
    assert len(ending.args[0]) == 1
    assert not graph.has_loss


def test_a_loss_may_be_given_to_an_inference_graph_as_well():
    graph = capture_step(nn.Linear(4, 2), [X, LABELS], loss=F.cross_entropy, mode="inference")

    assert graph.has_loss


def test_a_loss_that_is_a_number_is_refused():
    finding = refused(nn.Linear(4, 2), [X, LABELS], loss=lambda output, label: 3.0)

    assert finding.code == "L003"
    assert "float" in finding.message


def test_a_training_model_without_a_loss_is_refused():
    finding = refused(nn.Linear(4, 2), [X])

    assert finding.code == "L004"


def test_a_training_model_with_two_losses_is_refused():
    model = function(lambda self, x: (F.l1_loss(x, x + 1), F.mse_loss(x, x + 1)))

    finding = refused(model, [X])

    assert finding.code == "L005"


def test_an_empty_input_is_refused_by_name():
    finding = refused(nn.Linear(4, 2), [torch.zeros(0, 4)], mode="inference")

    assert finding.code == "C008"
    assert finding.notes[0] == "the tensor is the input `input`"


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_an_input_of_a_type_that_the_device_lacks_is_refused(kind):
    finding = refused(nn.Identity(), [X.to(kind)], mode="inference")

    assert finding.code == "C012"


def test_a_sparse_input_is_refused():
    finding = refused(nn.Identity(), [X.to_sparse()], mode="inference")

    assert finding.code == "C012"
    assert finding.help == ("make it dense before the call: `.to_dense()`",)


class Batch:
    def __init__(self, x):
        self.x = x


class BatchAdapter(StructureAdapter):
    def yieldTensors(self, struct):
        yield struct.x

    def reconstruct(self, original_structure, tensor_iterator):
        return Batch(next(tensor_iterator))


def test_an_argument_that_hides_tensors_is_refused():
    finding = refused(function(lambda self, batch: batch.x * 2), [Batch(X)], mode="inference")

    assert finding.code == "C014"
    assert "an argument of `forward` holds tensors inside `Batch`" in finding.message


def test_an_output_that_hides_tensors_is_refused_where_they_are_made():
    forward = lambda self, x: Batch(x * 2)  # noqa: E731 - its line is what is tested

    finding = refused(function(forward), [X], mode="inference")

    assert finding.code == "C014"
    assert "the output of `forward` holds tensors inside `Batch`" in finding.message
    assert finding.place.line == forward.__code__.co_firstlineno


def test_an_object_with_an_adapter_goes_in_and_out():
    register_structure_adapter(Batch, BatchAdapter())
    try:
        graph = inference(function(lambda self, batch: Batch(batch.x * 2)), [Batch(X)])
    finally:
        register_structure_adapter(Batch, None)

    assert len(graph.inputs) == len(graph.outputs) == 1
    assert type(graph.output_structure) is Batch


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'training' or 'inference', not 'test'"):
        capture_step(nn.Linear(4, 2), [X], mode="test")


def test_a_context_is_entered_around_forward():
    events = []

    class Context:
        def __enter__(self):
            events.append("enter")

        def __exit__(self, *_error):
            events.append("exit")

    model = function(lambda self, x: (events.append("forward"), x * 2)[1])

    capture_step(model, [X], mode="inference", around_forward=Context)

    assert events == ["enter", "forward", "exit"]


def test_two_captures_of_one_model_are_equal():
    model = Classifier()

    first, second = inference(model, [X]), inference(model, [X])

    assert str(first) == str(second)


def test_facts_are_added_to_the_node_of_every_operator():
    numbers = iter(range(10))

    graph = capture_step(nn.Tanh(), [torch.ones(2)], mode="inference", node_facts=lambda: {"number": next(numbers)})

    assert [operator.node.meta["number"] for operator in graph.operators] == [0]


CLASSES = torch.randint(0, 4, (5,))
VALUES = torch.rand(5, 4)
SIGNS = torch.ones(5, 4)
PAIRS = torch.ones(5)

LOSSES = {
    "identity_loss": (lambda w, y: identity_loss(w, reduction="mean"), CLASSES),
    "nll_loss": (lambda w, y: F.nll_loss(w, y), CLASSES),
    "nll_loss of images": (lambda w, y: F.nll_loss(w.reshape(1, 4, 5, 1), y), CLASSES.reshape(1, 5, 1)),
    "cross_entropy": (lambda w, y: F.cross_entropy(w, y), CLASSES),
    "cross_entropy of probabilities": (lambda w, y: F.cross_entropy(w, y), VALUES),
    "l1_loss": (lambda w, y: F.l1_loss(w, y), VALUES),
    "mse_loss": (lambda w, y: F.mse_loss(w, y), VALUES),
    "binary_cross_entropy": (lambda w, y: F.binary_cross_entropy(w.sigmoid(), y), VALUES),
    "binary_cross_entropy_with_logits": (lambda w, y: F.binary_cross_entropy_with_logits(w, y), VALUES),
    "kl_div": (lambda w, y: F.kl_div(w, y, reduction="batchmean"), VALUES),
    "poisson_nll_loss": (lambda w, y: F.poisson_nll_loss(w, y), VALUES),
    "smooth_l1_loss": (lambda w, y: F.smooth_l1_loss(w, y), VALUES),
    "soft_margin_loss": (lambda w, y: F.soft_margin_loss(w, y), SIGNS),
    "multilabel_soft_margin_loss": (lambda w, y: F.multilabel_soft_margin_loss(w, y), VALUES.round()),
    "MultiLabelSoftMarginLoss": (lambda w, y: nn.MultiLabelSoftMarginLoss()(w, y), VALUES.round()),
    "hinge_embedding_loss": (lambda w, y: F.hinge_embedding_loss(w, y), SIGNS),
    "cosine_embedding_loss": (lambda w, y: F.cosine_embedding_loss(w, w * 2, y), PAIRS),
    "margin_ranking_loss": (lambda w, y: F.margin_ranking_loss(w[:, 0], w[:, 1], y), PAIRS),
    "triplet_margin_loss": (lambda w, y: F.triplet_margin_loss(w, y, w * 2), VALUES),
    "ctc_loss": (
        lambda w, y: F.ctc_loss(F.log_softmax(w[:, None], 2), y, (5,), (3,)),
        torch.tensor([[1, 2, 3]]),
    ),
}


@pytest.mark.parametrize(("function", "label"), LOSSES.values(), ids=LOSSES.keys())
def test_every_loss_function_of_the_device_counts_once(trace, function, label):
    graph = trace(function, label, mode="training")

    assert graph.num_losses == 1
    assert graph.has_loss
    assert graph.loss_has_gradient


@pytest.mark.parametrize(
    "function",
    [
        lambda w, y: F.huber_loss(w, y),
        lambda w, y: (w - y).square().mean(),
    ],
)
def test_other_values_are_no_losses(refusal, function):
    finding = refusal(function, VALUES, mode="training")

    assert finding.code == "L004"


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_the_reduction_does_not_matter(trace, reduction):
    graph = trace(lambda w, y: F.l1_loss(w, y, reduction=reduction), VALUES, mode="training")

    assert graph.num_losses == 1


def test_a_loss_that_feeds_another_is_demoted(trace):
    graph = trace(
        lambda w, y: identity_loss(F.l1_loss(w, y) + 0.1 * F.mse_loss(w, y), reduction="none"), VALUES, mode="training"
    )

    final, demoted = find_losses(graph.graph)

    assert [str(node.target) for node in final] == ["poptorch.identity_loss.default"]
    assert [str(node.target) for node in demoted] == ["aten.l1_loss.default", "aten.mse_loss.default"]


def test_a_loss_with_a_penalty_trains_on_the_loss_alone(trace):
    graph = trace(lambda w, y: F.l1_loss(w, y) + w.square().sum(), VALUES, mode="training")

    final = single_final_loss(graph.graph)

    assert str(final.target) == "aten.l1_loss.default"


def test_independent_losses_are_refused_with_all_their_places(refusal):
    def two(w, y):
        first = F.l1_loss(w, y)
        second = F.mse_loss(w, y)
        return first, second

    finding = refusal(two, VALUES, mode="training")

    assert finding.code == "L005"
    assert len(finding.notes) == 2
    assert finding.place.line == two.__code__.co_firstlineno + 2


def test_no_loss_is_refused_with_the_remedy(refusal):
    finding = refusal(lambda w: w * 2, mode="training")

    assert finding.code == "L004"
    assert "in `forward`" in finding.help[0]
    assert "identity_loss" in finding.help[1]
    assert "to_ipu(model, loss)" in finding.help[2]


def test_inference_asks_for_no_loss(trace):
    graph = trace(lambda w, y: (F.l1_loss(w, y), F.mse_loss(w, y)), VALUES)

    assert graph.num_losses == 0
    assert not graph.has_loss


def test_a_graph_without_losses_has_no_final_one(trace):
    graph = trace(lambda w: w * 2).graph

    with pytest.raises(CaptureError) as caught:
        single_final_loss(graph)

    assert caught.value.code == "L004"


def test_a_loss_that_is_given_needs_no_loss_function():
    graph = capture_step(nn.Linear(4, 4), [VALUES, VALUES], loss=lambda output, label: (output - label).square().mean())

    assert graph.has_loss
    assert graph.loss_has_gradient
