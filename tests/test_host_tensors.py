"""The tensors of a model are listed as they are, and what the device cannot keep together is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.diagnostics import CaptureError
from porting.host_tensors import host_tensors, iter_gradient_hooks, refuse_shared_memory, walk_modules


def test_parameters_come_first_and_a_shared_one_once_with_all_names():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[2].weight = model[1].weight

    found = host_tensors(model)

    assert [host.kind for host in found] == ["parameter"] * 5 + ["buffer"] * 3
    (shared,) = [host for host in found if host.name == "1.weight"]
    assert shared.aliases == ("1.weight", "2.weight")
    assert shared.tensor is model[1].weight


def test_a_shared_module_is_walked_once():
    layer = nn.Linear(2, 2)

    assert walk_modules(nn.ModuleList([layer, layer]))[1:] == [("0.", layer)]


def test_a_parameter_with_a_gradient_hook_is_refused_by_name():
    model = nn.Linear(2, 2)
    model.bias.register_hook(lambda gradient: gradient)

    found = list(iter_gradient_hooks(host_tensors(model)))

    assert [error.finding.code for error in found] == ["C007"]
    assert "`bias`" in found[0].finding.message


def make_overlapping(start):
    memory, model = torch.zeros(6), nn.Module()
    model.register_buffer("one", memory[:3])
    model.register_buffer("other", memory[start : start + 2])
    return host_tensors(model)


def test_tensors_that_share_memory_are_refused_where_one_changes():
    with pytest.raises(CaptureError, match="`one` and the buffer `other` share memory"):
        refuse_shared_memory(make_overlapping(2), lambda host: host.name == "other")


@pytest.mark.parametrize(("start", "changes"), [(2, False), (3, True)])
def test_what_nobody_changes_and_what_only_lies_in_one_storage_may_stay(start, changes):
    refuse_shared_memory(make_overlapping(start), lambda _host: changes)


@pytest.mark.parametrize("values", [FakeTensorMode(), torch.device("meta")], ids=["fake", "meta"])
def test_weights_without_values_share_memory_where_those_with_values_would(values):
    with values:
        apart, tied = nn.Linear(2, 3), make_overlapping(2)

    refuse_shared_memory(host_tensors(apart), lambda _host: True)
    with pytest.raises(CaptureError, match="`one` and the buffer `other` share memory"):
        refuse_shared_memory(tied, lambda _host: True)
