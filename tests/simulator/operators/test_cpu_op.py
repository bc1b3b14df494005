"""`CPU`: Python code that the host runs in the middle of a graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn


class OnHost(nn.Module):
    """Doubles its input, calls `layer` on the host, and adds one."""

    def __init__(self, poptorch, layer):
        super().__init__()
        self.layer = layer if isinstance(layer, nn.Module) else None
        self.cpu = poptorch.CPU(layer, "MyLayer")

    def forward(self, *inputs):
        return self.cpu(*(x * 2 for x in inputs)) + 1


def test_the_layer_runs_in_the_middle_of_the_graph(poptorch):
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3)

    result = poptorch.inferenceModel(OnHost(poptorch, layer))(x)

    torch.testing.assert_close(result, layer(x * 2).detach() + 1)


def test_without_an_executor_it_is_a_plain_call(poptorch):
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3)

    torch.testing.assert_close(OnHost(poptorch, layer)(x), layer(x * 2) + 1)


def test_the_layer_runs_once_at_compilation_and_once_for_each_micro_batch(poptorch):
    seen = []

    def layer(x):
        seen.append((x.device.type, tuple(x.shape), x.sum().item()))
        return x * 3

    model = poptorch.inferenceModel(OnHost(poptorch, layer), poptorch.Options().deviceIterations(2))
    x = torch.tensor([[1.0], [2.0]])

    model.compile(x)
    at_compilation = list(seen)
    results = [model(x), model(x)]

    assert at_compilation == [("cpu", (1, 1), 0.0)]
    assert seen[1:] == [("cpu", (1, 1), 2.0), ("cpu", (1, 1), 4.0)] * 2
    assert results[0].flatten().tolist() == [7, 13]


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_the_layer_makes_tensors_of_the_host(poptorch):
    def layer(x):
        return x + torch.range(0, 1) + torch.arange(2) + torch.tensor([1.0, 1.0])

    model = poptorch.inferenceModel(OnHost(poptorch, layer))

    assert model(torch.zeros(1, 2)).tolist() == [[2, 4]]


def test_the_device_is_not_running_while_the_host_is_called(poptorch):
    seen = []
    model = poptorch.inferenceModel(OnHost(poptorch, lambda x: seen.append(poptorch.isRunningOnIpu()) or x))

    model(torch.ones(1))

    assert seen[-1] is False


def test_parameters_of_the_layer_are_frozen(poptorch):
    layer = nn.Linear(3, 2)

    poptorch.CPU(layer, "id")

    assert not any(parameter.requires_grad for parameter in layer.parameters())


def test_changed_weights_of_the_layer_take_effect(poptorch):
    layer = nn.Linear(1, 1)
    model = poptorch.inferenceModel(OnHost(poptorch, layer))
    model(torch.ones(1, 1))

    layer.weight.fill_(5.0)
    layer.bias.fill_(0.0)

    assert model(torch.ones(1, 1)).item() == 11


def test_the_layer_may_make_and_read_tensors(poptorch):
    def layer(x):
        return x + torch.tensor([1.0]) + torch.zeros(1) + float(x.sum().item())

    assert poptorch.inferenceModel(OnHost(poptorch, layer))(torch.ones(1)).item() == 6


def test_several_inputs_and_outputs(poptorch):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.cpu = poptorch.CPU(lambda x, y: (x + y, (x > 1).sum()), "two")

        def forward(self, x, y):
            return self.cpu(x, y)

    result = poptorch.inferenceModel(Two())(torch.tensor([1.0, 2.0]), torch.tensor([3, 4]))

    assert type(result) is list
    assert [tensor.tolist() for tensor in result] == [[4, 6], 1]
    assert [tensor.dtype for tensor in result] == [torch.float32, torch.int32]


def test_arguments_may_be_named_and_nested(poptorch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cpu = poptorch.CPU(lambda x, *, others, factor: x * factor + sum(others), "named")

        def forward(self, x, y):
            return self.cpu(x, others=[y, y], factor=3)

    x, y = torch.ones(2), torch.tensor([1.0, 2.0])

    assert poptorch.inferenceModel(Model())(x, y).tolist() == [5, 7]
    assert Model()(x, y).tolist() == [5, 7]


def test_no_gradient_passes_through_the_host(poptorch, caplog):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Linear(2, 2), nn.Linear(2, 2)
            self.cpu = poptorch.CPU(torch.tanh, "tanh")

        def forward(self, x):
            return poptorch.identity_loss(self.after(self.cpu(self.before(x))), "sum")

    model = Model()
    before, after = (layer.weight.detach().clone() for layer in (model.before, model.after))

    poptorch.trainingModel(model)(torch.ones(1, 2))

    assert torch.equal(model.before.weight, before)
    assert not torch.equal(model.after.weight, after)
    assert "poptorch.CPU is for inference" in caplog.text


def test_one_object_may_be_called_several_times(poptorch):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.cpu = poptorch.CPU(lambda x: x.sum(dim=0) + 1, "twice")

        def forward(self, x):
            return self.cpu(self.cpu(x) * 10)

    assert poptorch.inferenceModel(Twice())(torch.ones(2, 3)).item() == 91


def test_integers_reach_the_layer_as_integers(poptorch):
    embedding = nn.Embedding(5, 2)

    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.cpu = poptorch.CPU(embedding, "lookup")

        def forward(self, index):
            return self.cpu(index)

    index = torch.tensor([3, 0])

    assert torch.equal(poptorch.inferenceModel(Lookup())(index), embedding(index))


def test_data_for_the_layer_lies_in_tensors_that_stay(poptorch):
    model = OnHost(poptorch, nn.Linear(3, 2))
    executor = poptorch.inferenceModel(model)
    executor.compile(torch.ones(4, 3))
    inputs, outputs = model.cpu.inputs, model.cpu.outputs

    executor(torch.ones(4, 3))

    assert model.cpu._ID == "MyLayer"
    assert model.cpu._layer_to_call is model.layer
    assert [list(shape) for shape in model.cpu.in_shapes] == [[4, 3]]
    assert [list(shape) for shape in model.cpu.out_shapes] == [[4, 2]]
    assert model.cpu.inputs[0] is inputs[0]
    assert model.cpu.outputs[0] is outputs[0]
    assert torch.equal(inputs[0], torch.full((4, 3), 2.0))
    torch.testing.assert_close(outputs[0], model.layer(inputs[0]))


def test_the_data_can_be_made_and_used_by_hand(poptorch):
    cpu = poptorch.CPU(lambda x: x + 2, "by hand")
    cpu.in_shapes, cpu.out_shapes = [[3]], [[3]]

    cpu.registerPersistentData()
    before = [tensor.clone() for tensor in (*cpu.inputs, *cpu.outputs)]
    cpu.execute()

    assert all(torch.equal(tensor, torch.zeros(3)) and tensor.dtype == torch.float32 for tensor in before)
    assert torch.equal(cpu.outputs[0], torch.full((3,), 2.0))


def test_calls_must_not_overlap(poptorch):
    inner = poptorch.CPU(lambda x: x, "inner")
    model = OnHost(poptorch, lambda x: inner(x))

    with pytest.raises(poptorch.Error, match="Trying to enter CPU from another CPU op! CPU ops must not overlap."):
        poptorch.inferenceModel(model)(torch.ones(1))


def test_after_a_failure_the_next_call_is_compiled_as_ever(poptorch):
    def fail(x):
        raise RuntimeError("from the layer")

    model = OnHost(poptorch, nn.Linear(2, 2))
    weight = model.layer.weight
    model.cpu._layer_to_call = fail
    with pytest.raises(RuntimeError, match="from the layer"):
        poptorch.inferenceModel(model)(torch.ones(1, 2))

    model.cpu._layer_to_call = model.layer

    assert poptorch.inferenceModel(model)(torch.ones(1, 2)).shape == (1, 2)
    assert model.layer.weight is weight


def test_a_layer_must_return_tensors(poptorch):
    with pytest.raises(poptorch.Error, match="must return tensors of the CPU, got int"):
        poptorch.inferenceModel(OnHost(poptorch, lambda x: 3))(torch.ones(1))


def test_calls_in_loops_run_in_each_round(poptorch):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cpu = poptorch.CPU(lambda x: x + 1, "loop")

        def forward(self, x):
            return poptorch.for_loop(4, lambda v: self.cpu(v) * 2, [x])

    (result,) = poptorch.inferenceModel(Loop())(torch.zeros(1))

    assert result.item() == 30
