"""Anchored tensors: what can be asked for, and that it is what the device computed."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator import OutputMode


class Net(nn.Module):
    """Two linear layers; returns the output and, with a target, its loss."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.fc2 = nn.Linear(4, 2)
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x, target=None):
        out = self.fc2(self.fc1(x).relu_()) + self.offset
        return out if target is None else (out, nn.functional.mse_loss(out, target))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def anchored(*names, mode=None, period=1, iterations=1, replicas=1, accumulation=1):
    """Make options that anchor each of `names` under its own name."""
    options = simulator.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if mode is not None:
        options.outputMode(mode, period)
    for name in names:
        options.anchorTensor(name, name)
    return options


def data(rows):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 3, generator=generator), torch.randn(rows, 2, generator=generator)


def gradients(model, x, target):
    """Return the gradients of the host's model by name."""
    host = Net()
    host.load_state_dict(model.state_dict())
    _out, loss = host(x, target)
    loss.backward()
    return {name: parameter.grad for name, parameter in host.named_parameters()}


def test_names_of_a_training_model_follow_popart(net):
    executor = simulator.trainingModel(net)
    executor(*data(2))

    names = executor.getTensorNames()

    assert len(names) == len(set(names))
    assert {"fc1.weight", "fc2.bias", "offset", "input", "input/1", "loss", "lossScaling_FLOAT"} <= set(names)
    for pattern in (
        r"\bfc1\b",
        r"\bfc2\b",
        "^input",
        "^loss",
        "^Gradient___fc1.weight$",
        "^UpdatedVar___fc2.bias$",
        "^scaledLearningRate0___specific___fc1.weight$",
        "^weightDecayScaleFactor0___specific___fc2.weight$",
    ):
        assert any(re.search(pattern, name) for name in names)


def test_names_of_other_optimizers_are_their_own(net):
    optimizer = simulator.optim.AdamW(net.parameters(), lr=0.1)
    executor = simulator.trainingModel(net, optimizer=optimizer)
    executor(*data(2))

    names = set(executor.getTensorNames())

    state = {f"{slot}___fc1.bias" for slot in ("Accl1", "Accl2", "Step")}
    assert state | {"learningRate___specific___fc1.bias", "weightDecay___specific___fc1.bias"} <= names
    assert set(optimizer.state_dict()["ipu_param"]) <= names
    assert set(optimizer.state_dict()["ipu_state"]) <= names


def test_names_of_inference_have_nothing_of_training(net):
    executor = simulator.inferenceModel(net)
    executor(data(2)[0])

    names = executor.getTensorNames()

    assert {"fc1.weight", "input", "fc1/Add:0", "Relu:0", "fc2/Add:0", "Add:0"} <= set(names)
    assert not [name for name in names if "___" in name or name == "lossScaling_FLOAT"]


def test_names_exist_once_the_model_is_compiled(net):
    executor = simulator.inferenceModel(net)

    with pytest.raises(AssertionError, match="Model must be compiled before calling getTensorNames"):
        executor.getTensorNames()
    executor.compile(data(2)[0])
    assert executor.getTensorNames()
    executor.destroy()
    with pytest.raises(AssertionError):
        executor.getTensorNames()


def test_frozen_parameters_have_no_gradient(net):
    net.fc1.weight.requires_grad_(False)
    executor = simulator.trainingModel(net)
    executor(*data(2))

    names = executor.getTensorNames()

    assert "Gradient___fc1.weight" not in names
    assert "UpdatedVar___fc1.weight" not in names
    assert "Gradient___fc1.bias" in names


def test_every_name_can_be_anchored(net):
    first = simulator.trainingModel(net)
    first(*data(2))
    names = first.getTensorNames()
    first.destroy()

    executor = simulator.trainingModel(net, anchored(*names))
    executor(*data(2))

    for name in names:
        assert isinstance(executor.getAnchoredTensor(name), torch.Tensor)


def test_inputs_weights_and_buffers_are_those_of_the_call(net):
    x, target = data(2)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    executor = simulator.trainingModel(net, anchored("input", "input/1", "fc1.weight", "offset"))
    executor(x, target)

    torch.testing.assert_close(executor.getAnchoredTensor("input"), x)
    torch.testing.assert_close(executor.getAnchoredTensor("input/1"), target)
    torch.testing.assert_close(executor.getAnchoredTensor("fc1.weight"), before["fc1.weight"])
    torch.testing.assert_close(executor.getAnchoredTensor("offset"), before["offset"])


def test_intermediate_values_are_not_changed_by_later_writes(net):
    x, _target = data(2)
    executor = simulator.inferenceModel(net, anchored("fc1/Add:0", "Relu:0"))
    out = executor(x)

    torch.testing.assert_close(executor.getAnchoredTensor("fc1/Add:0"), net.fc1(x).detach())
    torch.testing.assert_close(executor.getAnchoredTensor("Relu:0"), net.fc1(x).relu().detach())
    torch.testing.assert_close(out, net(x))


def test_the_loss_is_anchored(net):
    executor = simulator.trainingModel(net, anchored("loss"))
    _out, loss = executor(*data(2))

    torch.testing.assert_close(executor.getAnchoredTensor("loss"), loss)


@pytest.mark.parametrize("scaling", [1.0, 8.0])
def test_gradients_have_the_loss_scaling(net, scaling):
    x, target = data(2)
    expected = gradients(net, x, target)
    optimizer = simulator.optim.SGD(net.parameters(), lr=0.1, loss_scaling=scaling)
    executor = simulator.trainingModel(net, anchored("Gradient___fc2.bias", "Gradient___fc1.weight"), optimizer)
    executor(x, target)

    for name in ("fc2.bias", "fc1.weight"):
        torch.testing.assert_close(executor.getAnchoredTensor(f"Gradient___{name}"), expected[name] * scaling)


def test_gradients_change_from_step_to_step(net):
    executor = simulator.trainingModel(net, anchored("Gradient___fc2.bias"))
    seen = []
    for _ in range(2):
        executor(*data(2))
        seen.append(executor.getAnchoredTensor("Gradient___fc2.bias"))

    assert seen[0].shape == (2,)
    assert not torch.equal(seen[0], seen[1])


def test_updated_weights_are_those_after_the_step(net):
    executor = simulator.trainingModel(net, anchored("UpdatedVar___fc2.weight", "fc2.weight"))
    executor(*data(2))

    torch.testing.assert_close(executor.getAnchoredTensor("UpdatedVar___fc2.weight"), net.fc2.weight.detach())
    assert not torch.equal(executor.getAnchoredTensor("fc2.weight"), net.fc2.weight)


def test_anchors_change_no_weight(net):
    x, target = data(12)
    results = []
    for names in ((), ("Gradient___fc1.weight", "Relu:0", "UpdatedVar___fc1.bias")):
        torch.manual_seed(0)
        model = Net()
        options = anchored(*names, iterations=2, accumulation=3)
        simulator.trainingModel(model, options, simulator.optim.Adam(model.parameters(), lr=0.1))(x, target)
        results.append(list(model.state_dict().values()))

    # without anchors the micro-batches run at once, which rounds in another order
    torch.testing.assert_close(results[0], results[1])


def test_optimizer_state_is_that_after_the_step(net):
    optimizer = simulator.optim.Adam(net.parameters(), lr=0.1)
    executor = simulator.trainingModel(net, anchored("Accl1___fc1.weight", "Step___fc1.weight"), optimizer)
    executor(*data(2))

    state = optimizer.state_dict()["ipu_state"]
    torch.testing.assert_close(executor.getAnchoredTensor("Accl1___fc1.weight"), state["Accl1___fc1.weight"])
    assert executor.getAnchoredTensor("Step___fc1.weight").item() == 1


def test_hyper_parameters_follow_the_optimizer(net):
    names = ("scaledLearningRate0___specific___fc1.weight", "lossScaling_FLOAT")
    optimizer = simulator.optim.SGD(net.parameters(), lr=0.5, loss_scaling=2.0)
    executor = simulator.trainingModel(net, anchored(*names), optimizer)
    executor(*data(2))
    first = [executor.getAnchoredTensor(name).item() for name in names]
    optimizer.param_groups[0]["lr"] = 0.25
    executor.setOptimizer(optimizer)
    executor(*data(2))

    assert first == [0.25, 2.0]
    assert executor.getAnchoredTensor(names[0]).item() == 0.125


def test_the_final_loss_scale_is_that_of_the_step(net):
    optimizer = simulator.optim.SGD(net.parameters(), lr=0.1, loss_scaling=4.0)
    options = anchored("finalLossScale", "lossScaleUpdateFactor")
    options.Training.setAutomaticLossScaling(True)
    executor = simulator.trainingModel(net, options, optimizer)
    for _ in range(3):
        factor = 1.0
        if executor.isCompiled():
            factor = optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"].item()
        executor(*data(2))

        assert executor.getAnchoredTensor("finalLossScale").item() == 4.0 * factor
        state = optimizer.state_dict()["ipu_state"]
        assert executor.getAnchoredTensor("lossScaleUpdateFactor") == state["lossScaleUpdateFactor"]


MODES = [
    (OutputMode.All, 1, 12),
    (OutputMode.EveryN, 3, 4),
    (OutputMode.Final, 1, 2),
    (OutputMode.Sum, 1, 2),
]


@pytest.mark.parametrize(("mode", "period", "num_results"), MODES)
def test_anchors_have_the_shapes_of_outputs_in_the_same_mode(net, mode, period, num_results):
    names = ("fc2.weight", "Gradient___fc2.bias", "loss", "lossScaling_FLOAT", "UpdatedVar___fc1.weight", "input")
    options = anchored(*names, mode=mode, period=period, iterations=2, accumulation=3, replicas=2)
    executor = simulator.trainingModel(net, options.broadcastBuffers(False))
    _out, loss = executor(*data(24))

    shapes = [tuple(executor.getAnchoredTensor(name).shape) for name in names]

    assert tuple(loss.shape) == (num_results,)
    n = num_results
    assert shapes == [(2 * n, 4), (2 * n,), (n,), (n,), (4 * n, 3), (2 * n, 3)]


def test_each_micro_batch_has_its_own_gradient(net):
    x, target = data(4)
    options = anchored("Gradient___fc2.bias", mode=OutputMode.All, accumulation=4)
    executor = simulator.trainingModel(net, options)
    expected = [gradients(net, x[i : i + 1], target[i : i + 1])["fc2.bias"] for i in range(4)]
    executor(x, target)

    torch.testing.assert_close(executor.getAnchoredTensor("Gradient___fc2.bias"), torch.cat(expected))


def test_sums_are_over_the_micro_batches_of_a_replica(net):
    x, target = data(4)
    expected = sum(gradients(net, x[i : i + 1], target[i : i + 1])["fc2.bias"] for i in range(4))
    names = ("Gradient___fc2.bias", "lossScaling_FLOAT")
    executor = simulator.trainingModel(net, anchored(*names, mode=OutputMode.Sum, accumulation=4))
    executor(x, target)

    torch.testing.assert_close(executor.getAnchoredTensor(names[0]), expected)
    assert executor.getAnchoredTensor(names[1]).item() == 4


def test_inputs_that_forward_changes_still_come_back(poptorch):
    class InPlace(nn.Module):
        def forward(self, x):
            x += 1
            return x * 2

    options = poptorch.Options()
    options.anchorTensor("before", "input")
    executor, x = poptorch.inferenceModel(InPlace(), options), torch.zeros(2)

    torch.testing.assert_close(executor(x), torch.full((2,), 2.0))
    torch.testing.assert_close(x, torch.ones(2))
    torch.testing.assert_close(executor.getAnchoredTensor("before"), torch.zeros(2))


def test_an_unknown_tensor_is_an_error_of_the_compiler(net):
    executor = simulator.inferenceModel(net, anchored("fc3.weight"))

    with pytest.raises(simulator.Error, match="Anchor tensor `fc3.weight'") as caught:
        executor(data(2)[0])

    assert caught.value.type == "popart_exception"


def test_gradients_do_not_exist_in_inference(net):
    with pytest.raises(simulator.Error, match="Gradient___fc1.weight"):
        simulator.inferenceModel(net, anchored("Gradient___fc1.weight"))(data(2)[0])


def test_only_anchored_tensors_of_a_call_can_be_asked_for(net):
    executor = simulator.inferenceModel(net, anchored("input"))
    executor.compile(data(2)[0])

    for name in ("input", "output"):
        with pytest.raises(AssertionError, match=f"No tensor with name {name} found."):
            executor.getAnchoredTensor(name)


def test_tensors_are_kept_by_their_short_names(net):
    options = simulator.Options()
    assert options.anchorTensor("short", "fc1.weight") is None
    executor = simulator.inferenceModel(net, options)
    executor(data(2)[0])

    assert list(executor._anchor_memory) == ["short"]
    torch.testing.assert_close(executor.getAnchoredTensor("short"), net.fc1.weight.detach())


@pytest.mark.parametrize(
    ("anchor_mode", "period", "text"),
    [
        (OutputMode.All, 1, "ALL/1"),
        (OutputMode.EveryN, 4, "EVERYN/4"),
        (OutputMode.Final, 1, "FINAL/1"),
        (OutputMode.Sum, 1, "Sum/1"),
    ],
)
@pytest.mark.parametrize("inherits", [False, True])
def test_the_log_lists_the_anchors(net, debug_log, anchor_mode, period, text, inherits):
    options = simulator.Options().deviceIterations(4)
    if inherits:
        options.outputMode(anchor_mode, period)
        options.anchorTensor("a", "fc1.weight")
    else:
        options.anchorTensor("a", "fc1.weight", anchor_mode, period)
    simulator.inferenceModel(net, options).compile(data(4)[0])

    assert f"  anchor ( fc1.weight {text} )" in debug_log()


def test_an_anchor_without_a_mode_gets_the_resolved_one_of_the_model(net):
    options = anchored("input")

    training = simulator.trainingModel(net, options)
    inference = simulator.inferenceModel(Net(), options)

    assert training.options.anchored_tensors["input"] == ["input", True, OutputMode.Final, 1]
    assert inference.options.anchored_tensors["input"] == ["input", True, OutputMode.All, 1]
    assert options.anchored_tensors["input"] == ["input", True, None, 1]


def test_a_call_that_fails_leaves_nothing_behind(net):
    options = anchored("Gradient___fc1.bias", mode=OutputMode.All, iterations=2)
    executor = simulator.trainingModel(net, options)
    executor(*data(2))
    compiled = executor.device_session.compiled
    compiled.anchors.observer.during_backward(lambda: None, compiled.state, compiled.plan.steps[0][0])
    executor(*data(2))

    assert executor.getAnchoredTensor("Gradient___fc1.bias").shape == (8,)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_weight_norm_has_the_names_of_its_parts():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.utils.weight_norm(nn.Linear(3, 2))

        def forward(self, x, target):
            return nn.functional.mse_loss(self.lin(x), target)

    model = Normed()
    executor = simulator.trainingModel(model, anchored("UpdatedVar___lin.weight_v"))
    executor(*data(2))

    names = executor.getTensorNames()
    assert {"lin.weight_v", "lin.weight_g"} <= set(names)
    assert "lin.weight" not in names
    torch.testing.assert_close(executor.getAnchoredTensor("UpdatedVar___lin.weight_v"), model.lin.weight_v.detach())


def test_frozen_parameters_have_no_learning_rate(net):
    net.fc1.weight.requires_grad_(False)
    executor = simulator.trainingModel(net)
    executor(*data(2))

    assert "scaledLearningRate0___specific___fc1.weight" not in executor.getTensorNames()
    assert "scaledLearningRate0___specific___fc1.bias" in executor.getTensorNames()
