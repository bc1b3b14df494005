"""Attributes in which `forward` kept a tensor of the device are as they were; all others are the user's business."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.diagnostics import Place
from porting.module_attributes import (
    collect_plain_modules,
    find_tensor,
    keep_attributes,
    keep_train_modes,
    switch_to_eval,
)

PLACE = Place("train.py", 3)


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = None
        self.cache = {"a": 1}
        self.history = []
        self.count = 0


def is_on_device(tensor):
    return tensor.device.type == "meta"


def kept(model, found):
    return keep_attributes(model, is_device_tensor=is_on_device, place_of=lambda *_: PLACE, report=found.append)


def device_tensor():
    return torch.ones(1, device="meta")


CHANGES = {
    "an attribute that was there": lambda m: setattr(m, "scale", device_tensor()),
    "a new attribute": lambda m: setattr(m, "table", device_tensor()),
    "an entry of a dictionary": lambda m: m.cache.update(b=device_tensor()),
    "an item of a list": lambda m: m.history.append((device_tensor(), 1)),
    "a tensor inside containers": lambda m: setattr(m, "scale", [{"k": (device_tensor(),)}]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tensor_of_the_device_does_not_stay_and_is_reported(change):
    model, found = nn.Sequential(Keeping()), []
    before = {name: (value, str(value)) for name, value in vars(model[0]).items()}

    with kept(model, found):
        change(model[0])

    assert {name: (value, str(value)) for name, value in vars(model[0]).items()} == before
    assert all(value is before[name][0] for name, value in vars(model[0]).items())
    assert [(finding.code, finding.place) for finding in found] == [("C014", PLACE)]
    assert "`self.0." in found[0].message


def test_everything_else_that_forward_changes_stays():
    model, found = Keeping(), []

    with kept(model, found):
        model.count, model.scale = 7, torch.ones(1)
        model.history.append("step")

    assert (model.count, float(model.scale), model.history, found) == (7, 1.0, ["step"], [])


def test_after_an_error_they_are_restored_without_a_word():
    model, found = Keeping(), []

    def fail():
        model.cache["b"] = device_tensor()
        raise KeyError

    with pytest.raises(KeyError), kept(model, found):
        fail()

    assert (model.cache, found) == ({"a": 1}, [])


def test_what_torchs_own_hooks_compute_is_restored_without_a_word():
    model, found = Keeping(), []
    model.register_forward_pre_hook(hook := lambda module, inputs: None)
    hook.name = "weight"

    with kept(model, found):
        model.weight = device_tensor()

    assert (hasattr(model, "weight"), found) == (False, [])


def test_the_module_behind_a_wrapper_is_looked_at_too():
    wrapper, inner = nn.Identity(), Keeping()
    wrapper._porting_model = SimpleNamespace()
    assert list(collect_plain_modules(wrapper).values()) == [wrapper]

    wrapper.__dict__["_porting_model"] = inner

    assert list(collect_plain_modules(wrapper).values()) == [inner]


def test_only_wanted_tensors_are_found():
    assert find_tensor({"a": [torch.ones(1)]}, is_on_device) is None
    assert find_tensor({"a": [torch.ones(1), device_tensor()]}, is_on_device).is_meta


class Stubborn(nn.Module):
    """Refuses to be switched by its own method."""

    def train(self, mode=True):
        raise AssertionError("a user's own `train()` may do more than switch a mode")


def test_modes_are_given_back():
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    modes = keep_train_modes(model.modules())

    with modes:
        model.train()

    assert [module.training for module in model.modules()] == [True, True, False]


def test_eval_modes_last_as_long_as_the_context():
    module = Stubborn()

    with switch_to_eval(module.modules()):
        during = module.training

    assert (during, module.training) == (False, True)
