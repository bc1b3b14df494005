"""Gradients are kept when asked for, and Python code that wants them on the host is told that they are not there."""

from __future__ import annotations

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import porting
from porting import PortOptions, to_ipu
from porting.diagnostics import CaptureError, PortingError


def port(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(keep_gradients=True, **options)
    return porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")


def expected(model, x, y):
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_close(found, wanted):
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


@pytest.mark.parametrize("options", [{}, {"micro_batch": 2, "accumulation": 3, "output_mode": "all"}], ids=str)
def test_gradients_are_those_of_plain_pytorch(options):
    model, (x, y) = nn.Linear(4, 2), (torch.randn(6, 4), torch.randn(6, 2))
    wanted = expected(model, x, y)
    ported = port(model, **options)

    ported(x, y)

    assert_close(ported.gradients(), wanted)


def test_each_step_of_a_call_has_its_own():
    model, (x, y) = nn.Linear(4, 2), (torch.randn(4, 4), torch.randn(4, 2))
    first = expected(model, x[:2], y[:2])
    ported = port(model, micro_batch=2, device_iterations=2, output_mode="all")

    ported(x, y)

    assert_close(ported.gradients(0), first)
    assert not torch.equal(ported.gradients(1)["weight"], ported.gradients(0)["weight"])
    assert torch.equal(ported.gradients()["bias"], ported.gradients(1)["bias"])


@pytest.mark.parametrize("wrong", [2, -3, 0.0, True])
def test_a_step_that_a_call_does_not_make_has_none(wrong):
    ported = port(nn.Linear(4, 2), micro_batch=2, device_iterations=2, output_mode="all")
    ported(torch.randn(4, 4), torch.randn(4, 2))

    with pytest.raises(PortingError, match="a call makes 2 optimizer steps") as caught:
        ported.gradients(wrong)
    assert caught.value.code == "P002"
    assert torch.equal(ported.gradients(-2)["bias"], ported.gradients(0)["bias"])


def test_loss_scaling_is_taken_out():
    model, (x, y) = nn.Linear(4, 2), (torch.randn(6, 4), torch.randn(6, 2))
    wanted = expected(model, x, y)
    simulator = pytest.importorskip("porting.simulator")
    optimizer = simulator.optim.SGD(model.parameters(), lr=0.1, loss_scaling=8.0)
    options = PortOptions(keep_gradients=True)
    ported = porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")

    ported(x, y)

    assert_close(ported.gradients(), wanted)


def test_only_what_is_trained_has_gradients():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    ported = port(model)

    ported(torch.randn(2, 4), torch.randn(2, 2))

    assert set(ported.gradients()) == {"1.weight", "1.bias"}


def test_keeping_gradients_changes_no_weight_and_no_state():
    data = torch.randn(2, 4), torch.randn(2, 2)
    results = []
    for options in (PortOptions(), PortOptions(keep_gradients=True)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        ported = porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")
        for _ in range(3):
            ported(*data)
        results.append((list(model.state_dict().values()), ported.optimizer_state_dict()["state"]))

    torch.testing.assert_close(results[0], results[1])


def test_without_the_option_there_are_none():
    ported = porting.to_ipu(nn.Linear(4, 2), nn.MSELoss(), device="sim")
    ported(torch.randn(2, 4), torch.randn(2, 2))

    with pytest.raises(PortingError) as caught:
        ported.gradients()
    assert caught.value.code == "D009"


def test_before_the_first_call_there_are_none():
    with pytest.raises(PortingError, match="before the first training call"):
        port(nn.Linear(4, 2)).gradients()


@pytest.mark.parametrize("wrong", [{"keep_gradients": 1}, {"keep_gradients": True, "accumulation": 2}], ids=str)
def test_gradients_of_several_micro_batches_need_all_outputs(wrong):
    with pytest.raises(PortingError) as caught:
        PortOptions(**wrong)
    assert caught.value.code == "P002"


def times_five(_module, gradients, *_others):
    return tuple(None if gradient is None else gradient * 5 for gradient in gradients)


class Net(nn.Module):
    def __init__(self, during=None):
        super().__init__()
        self.first, self.last, self.during = nn.Linear(4, 8), nn.Linear(8, 3), during

    def forward(self, x):
        h = self.first(x)
        if self.during is not None:
            self.during(self, h)
        return self.last(h)


def call(model, loss=None):
    ported = to_ipu(model, loss or nn.CrossEntropyLoss(), device="sim")
    ported(torch.rand(6, 4), torch.randint(3, (6,)))


def refusal_of(model, loss=None):
    with pytest.raises(CaptureError) as caught:
        call(model, loss)
    assert caught.value.code == "C007"
    return str(caught.value)


@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_full_backward_hook(times_five),
        lambda module: module.register_full_backward_pre_hook(times_five),
        lambda module: module.register_backward_hook(times_five),
    ],
    ids=["full", "before", "old"],
)
def test_a_backward_hook_of_a_module_is_refused_by_the_modules_name(register):
    model = Net()
    register(model.first)

    assert "the module `first` (Linear) has a backward hook" in refusal_of(model)


def test_a_backward_hook_of_the_model_itself_is_refused():
    model = Net()
    model.register_full_backward_hook(times_five)

    assert "`Net`" in refusal_of(model)


def test_a_backward_hook_of_the_loss_is_refused():
    loss = nn.CrossEntropyLoss()
    loss.register_full_backward_hook(times_five)

    assert "the module `loss` (CrossEntropyLoss)" in refusal_of(Net(), loss)


@pytest.mark.parametrize("name", ["register_module_full_backward_hook", "register_module_full_backward_pre_hook"])
def test_a_backward_hook_of_all_modules_is_refused(name):
    hook = getattr(module_hooks, name)(times_five)
    try:
        assert "all modules have a backward hook" in refusal_of(Net())
    finally:
        hook.remove()


def test_a_hook_of_a_tensor_in_forward_is_refused_with_its_line():
    def register(_net, h):
        h.register_hook(lambda gradient: gradient * 5)  # registered here

    assert "# registered here" in refusal_of(Net(register))


def test_a_forward_hook_that_hooks_the_gradient_is_refused_with_its_line():
    model = Net()
    model.first.register_forward_hook(lambda _module, _args, h: h.register_hook(lambda g: g * 5) and None)  # here

    assert "# here" in refusal_of(model)


def test_a_hook_that_forward_registers_on_a_module_is_refused():
    assert "`last`" in refusal_of(Net(lambda net, _h: net.last.register_full_backward_hook(times_five)))


def test_a_refused_hook_leaves_a_plain_model_that_can_be_ported_without_it():
    model = Net()
    hook = model.first.register_full_backward_hook(times_five)
    refusal_of(model)
    hook.remove()

    call(model)

    assert type(model.first.weight).__name__ == "Parameter"


def test_forward_hooks_that_observe_or_compute_are_fine():
    model = Net()
    seen = []
    model.first.register_forward_pre_hook(lambda _module, args: seen.append("before") or (args[0] * 2,))
    model.first.register_forward_hook(lambda _module, _args, h: seen.append("after") or h * 3)

    call(model)

    # a second capture looks for what Python decides, and runs `forward` with its hooks again
    assert seen == ["before", "after"] * 2


def test_inference_calls_no_hooks_and_refuses_none():
    model = Net(lambda _net, h: h.requires_grad and h.register_hook(lambda gradient: gradient))
    model.first.register_full_backward_hook(times_five)

    scores = to_ipu(model, nn.CrossEntropyLoss(), device="sim").inference()(torch.rand(6, 4))

    assert scores.shape == (6, 3)


BATCH = torch.rand(6, 4), torch.randint(3, (6,))


def make_port():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")
    _output, loss = ported(*BATCH)
    return ported, model, optimizer, loss


def said_by(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("clip", [clip_grad_norm_, nn.utils.clip_grad_norm_])
def test_clipping_on_the_host_is_said_with_the_remedy(clip):
    _ported, model, _optimizer, _loss = make_port()

    (text,) = said_by(lambda: clip(model.parameters(), 1.0))  # clipped here

    assert "O007" in text
    assert f"`{clip.__name__}` has nothing to work on" in text
    assert "max_grad_norm" in text
    assert "# clipped here" in text


def test_clipping_values_is_said_before_torch_fails():
    _ported, model, _optimizer, _loss = make_port()

    with pytest.warns(UserWarning, match="`clip_grad_value_` has nothing"), pytest.raises(RuntimeError):
        clip_grad_value_(model.parameters(), 1.0)


def test_clipping_is_said_once_in_a_loop():
    ported, model, _optimizer, _loss = make_port()

    def loop():
        for _step in range(3):
            ported(*BATCH)
            clip_grad_norm_(model.parameters(), 1.0)

    assert len(said_by(loop)) == 1


def test_unscaling_on_the_host_is_said_with_the_remedy():
    _ported, _model, optimizer, _loss = make_port()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))

    (text,) = said_by(lambda: scaler.unscale_(optimizer))

    assert "leave `GradScaler` out" in text


def test_a_users_own_look_at_gradients_is_said():
    _ported, model, _optimizer, _loss = make_port()

    (text,) = said_by(lambda: [weight.grad.norm() for weight in model.parameters() if weight.grad is not None])

    assert "`.grad` is read and is None" in text
    assert "keep_gradients=True" in text


def test_what_reads_no_gradients_of_the_device_says_nothing():
    ported, model, optimizer, _loss = make_port()

    def use():
        optimizer.zero_grad()
        model.zero_grad()
        deepcopy(model)
        ported.state_dict()
        torch.save(model.state_dict(), "/dev/null")
        ported(*BATCH)

    assert said_by(use) == []


def test_other_models_are_clipped_as_ever():
    make_port()
    plain = nn.Linear(4, 3)
    plain(BATCH[0]).sum().backward()

    assert said_by(lambda: clip_grad_norm_(plain.parameters(), 1e-3)) == []
    assert plain.weight.grad.norm() < 1e-2


def test_the_model_is_clipped_again_once_the_port_is_gone():
    ported, model, _optimizer, _loss = make_port()
    ported.destroy()
    model(BATCH[0]).sum().backward()

    assert said_by(lambda: clip_grad_norm_(model.parameters(), 1e-3)) == []
    assert model[0].weight.grad.norm() < 1e-2


def test_gradients_of_a_ported_models_parameters_can_be_set_and_deleted():
    _ported, model, _optimizer, _loss = make_port()
    weight = model[0].weight

    weight.grad = torch.ones_like(weight)
    assert weight.grad.sum() == 32
    weight.grad = None

    assert said_by(lambda: weight.grad) != []


@pytest.mark.parametrize(
    "scale", [lambda loss: torch.amp.GradScaler("cpu").scale(loss), lambda loss: loss / 4, lambda loss: loss + 0]
)
def test_a_scaled_loss_has_no_gradient(scale):
    _ported, _model, _optimizer, loss = make_port()

    with pytest.raises(RuntimeError, match="does not require grad"):
        scale(loss).backward()


def test_a_scaler_that_is_off_hands_the_loss_on():
    _ported, _model, _optimizer, loss = make_port()

    with pytest.raises(PortingError, match="O007"):
        torch.amp.GradScaler("cpu", enabled=False).scale(loss).backward()
