"""A module's parameters and buffers: how they are named, and what `forward` may do to them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from porting.capture import capture_step
from porting.diagnostics import CaptureError, Severity
from porting.host_tensors import host_tensors


class Counter(nn.Module):
    """A module with a parameter, a buffer and a list, whose `forward` is `step(self, x)`."""

    def __init__(self, step):
        super().__init__()
        self.step = step
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(3))
        self.seen = []

    def forward(self, x):
        return self.step(self, x)


def reassign_buffer(self, x):
    self.total = self.total + x
    return self.total


def remove_buffer(self, x):
    del self.total
    return x


def reassign_parameter(self, x):
    self.weight = nn.Parameter(x * 2)
    return x


def keep_attribute(self, x):
    self.kept = x * 3
    return x


def register_late(self, x):
    self.register_buffer("late", x * 3)
    return x


def write_buffer(self, x):
    self.total += x
    return self.total * 1


def write_parameter(self, x):
    with torch.no_grad():
        self.weight.clamp_(-0.1, 0.1)
    return x * self.weight


def captured(step):
    model = Counter(step)
    return model, capture_step(model, [torch.ones(3)], mode="inference")


def refused(step):
    model = Counter(step)
    with pytest.raises(CaptureError) as caught:
        capture_step(model, [torch.ones(3)], mode="inference")
    return model, caught.value.finding


def test_parameters_come_before_buffers():
    found = host_tensors(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))

    assert [(entry.name, entry.kind) for entry in found] == [
        ("0.weight", "parameter"),
        ("0.bias", "parameter"),
        ("1.weight", "parameter"),
        ("1.bias", "parameter"),
        ("0.running_mean", "buffer"),
        ("0.running_var", "buffer"),
        ("0.num_batches_tracked", "buffer"),
    ]


def test_the_names_are_those_of_the_state_dict():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.Linear(2, 2)))

    found = host_tensors(model)

    assert sorted(entry.name for entry in found) == sorted(model.state_dict())


def test_the_tensors_are_the_model_s_own():
    model = nn.Linear(2, 2)

    found = host_tensors(model)

    assert found[0].tensor is model.weight


def test_a_tied_weight_is_listed_once_with_all_its_names():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight

    (entry,) = host_tensors(model)

    assert (entry.name, entry.aliases) == ("0.weight", ("0.weight", "1.weight"))


def test_a_shared_module_is_listed_once():
    layer = nn.Linear(2, 2, bias=False)

    (entry,) = host_tensors(nn.Sequential(layer, layer))

    assert entry.aliases == ("0.weight",)


def test_buffers_outside_the_state_dict_are_listed():
    model = nn.Module()
    model.register_buffer("mask", torch.ones(2), persistent=False)

    (entry,) = host_tensors(model)

    assert (entry.name, entry.kind) == ("mask", "buffer")


def test_absent_tensors_are_left_out():
    found = host_tensors(nn.Linear(2, 2, bias=False))

    assert [entry.name for entry in found] == ["weight"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_the_tensors_of_scripted_modules_are_listed():
    found = host_tensors(torch.jit.script(nn.Linear(2, 2)))

    assert [entry.name for entry in found] == ["weight", "bias"]


def test_a_reassigned_buffer_is_refused_where_its_value_is_computed():
    _model, finding = refused(reassign_buffer)

    assert finding.code == "C006"
    assert finding.message.startswith("Buffer total is reassigned within the model when calling the forward method.")
    assert finding.place.line == reassign_buffer.__code__.co_firstlineno + 1
    assert "self.total.copy_(" in finding.help[0]


def test_a_reassigned_parameter_is_refused():
    _model, finding = refused(reassign_parameter)

    assert finding.code == "C006"
    assert finding.message.startswith("Parameter weight is reassigned")


def test_a_removed_buffer_is_refused():
    _model, finding = refused(remove_buffer)

    assert finding.code == "C006"
    assert finding.message == "Buffer total is removed from the model when calling the forward method."


@pytest.mark.parametrize("step", [reassign_buffer, reassign_parameter, remove_buffer])
def test_what_is_refused_leaves_the_model_its_tensors(step):
    model, _finding = refused(step)

    assert isinstance(model.weight, nn.Parameter)
    assert torch.equal(model.weight, torch.ones(3))
    assert torch.equal(model.total, torch.zeros(3))


def test_the_buffers_of_batch_norm_may_be_reassigned():
    class Replacing(nn.BatchNorm1d):
        def forward(self, x):
            self.running_mean = self.running_mean * 1
            return super().forward(x)

    model = Replacing(3)
    own = model.running_mean

    capture_step(model, [torch.ones(2, 3)], mode="inference")

    assert model.running_mean is own


def test_a_buffer_that_is_written_to_is_known():
    _model, graph = captured(write_buffer)

    assert graph.mutated_buffers == {"total"}
    assert graph.mutated_parameters == set()


def test_a_parameter_that_is_written_to_is_known():
    _model, graph = captured(write_parameter)

    assert graph.mutated_parameters == {"weight"}
    assert graph.mutated_buffers == set()


@pytest.mark.parametrize("step", [write_buffer, write_parameter])
def test_writing_changes_nothing_on_the_host(step):
    model, _graph = captured(step)

    assert torch.equal(model.weight, torch.ones(3))
    assert torch.equal(model.total, torch.zeros(3))


@pytest.mark.parametrize(("step", "name"), [(keep_attribute, "kept"), (register_late, "late")])
def test_a_tensor_left_on_the_module_is_warned_of_and_removed(step, name):
    model, graph = captured(step)

    (finding,) = graph.findings
    assert (finding.code, finding.severity) == ("C014", Severity.WARNING)
    assert f"self.{name}" in finding.message
    assert finding.place.line == step.__code__.co_firstlineno + 1
    assert not hasattr(model, name)


def test_an_attribute_that_held_something_else_holds_it_again():
    model = Counter(keep_attribute)
    model.kept = "before"

    capture_step(model, [torch.ones(3)], mode="inference")

    assert model.kept == "before"


def test_hooks_that_compute_a_weight_leave_no_warning():
    model = prune.l1_unstructured(nn.Linear(4, 2), "weight", 3)

    graph = capture_step(model, [torch.ones(1, 4)], mode="inference")

    assert graph.findings == ()


class Stateful(nn.Module):
    """Keeps the state of its LSTM, a tuple of two tensors, for the next call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 4, batch_first=True)
        self.state = None

    def forward(self, x):
        output, self.state = self.layer(x, self.state)
        return output


def test_a_tuple_of_tensors_left_on_the_module_is_warned_of_and_removed():
    model = Stateful()

    graph = capture_step(model, [torch.ones(2, 3, 4)], mode="inference")

    (finding,) = graph.findings
    assert finding.code == "C014"
    assert "self.state" in finding.message
    assert model.state is None


def test_the_own_list_of_weights_of_a_recurrent_layer_is_no_leftover():
    graph = capture_step(nn.LSTM(4, 4, batch_first=True), [torch.ones(2, 3, 4)], mode="inference")

    assert graph.findings == ()


X = torch.ones(2, 3)


class Counts(nn.Module):
    """Has a buffer `count`, and does with it in `forward` what `change(self, x)` says."""

    def __init__(self, change, count=0):
        super().__init__()
        self.register_buffer("count", torch.tensor(count))
        self.change = change

    def forward(self, x):
        self.change(self)
        return x


def add_one(model):
    model.count += 1


def operators(model):
    graph = capture_step(model, [X], mode="inference")
    return [op.operator for op in graph.operators], graph


def test_a_count_that_is_read_is_made_in_a_copy():
    class Reads(Counts):
        def forward(self, x):
            self.count += 1
            return x + self.count

    names, graph = operators(Reads(None))

    assert names == ["aten.clone.default", "aten.add_.Tensor", "aten.add.Tensor"]
    assert graph.mutated_buffers == set()


def test_a_count_that_nothing_reads_is_left_out():
    names, graph = operators(nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()))

    assert names == ["aten.batch_norm.default", "aten.relu.default"]
    assert graph.findings == ()


def test_a_model_that_only_counts_has_an_empty_graph():
    names, graph = operators(Counts(add_one))

    assert names == []
    assert graph.graph.find_nodes(op="output")


@pytest.mark.parametrize("change", [add_one, lambda model: model.count.view(1)[0].add_(1)], ids=["whole", "view"])
def test_a_lost_write_is_reported_at_its_line(change):
    _names, graph = operators(Counts(change))

    (finding,) = graph.findings
    assert (finding.code, finding.place.file) == ("C019", __file__)
    assert finding.message == "what `forward` writes into the int64 buffer `count` is lost after each micro-batch"


def test_a_lost_truth_value_is_reported():
    _names, graph = operators(Counts(lambda model: model.count.logical_not_(), count=False))

    assert graph.findings[0].message.startswith("what `forward` writes into the bool buffer `count` is lost")


def test_a_parameter_of_integers_is_a_constant_too():
    model = Counts(add_one)
    del model.count
    model.count = nn.Parameter(torch.tensor(0), requires_grad=False)

    _names, graph = operators(model)

    assert graph.mutated_parameters == set()
    assert [finding.code for finding in graph.findings] == ["C019"]


def test_floats_are_variables():
    _names, graph = operators(Counts(add_one, count=0.0))

    assert graph.mutated_buffers == {"count"}
    assert graph.findings == ()
