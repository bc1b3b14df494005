"""What would clip, unscale or read gradients on the host after a port is said, once, with what to do instead."""

from __future__ import annotations

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from porting import to_ipu
from porting.diagnostics import PortingError

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
