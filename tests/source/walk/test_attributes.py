"""Attributes: of modules, wrappers, loaders, optimizers and classes that derive from each other."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts

START = """
import torch, poptorch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, Sampler
net = nn.Linear(3, 2)
"""


def kinds_of(facts: Facts) -> Set[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return {one.kind.value for one in call.arguments[0]}


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("nn.DataParallel(net).module", {"module"}),
        ("poptorch.trainingModel(net).model", {"module"}),
        ("optim.SGD(net.parameters()).param_groups[0]", {"parameters"}),
        ("DataLoader(torch.utils.data.TensorDataset(x)).dataset", {"dataset"}),
        ("DataLoader(d, sampler=torch.utils.data.RandomSampler(d)).sampler", {"sampler"}),
        ("nn.ModuleDict({'a': net}).a", {"module"}),
        ("nn.ModuleList([net, net])[0]", {"module"}),
        ("poptorch.Options().Training", {"options"}),
        ("poptorch.Options().deviceIterations(3)", {"options"}),
    ],
)
def test_what_an_attribute_is(facts_of, expression, kinds):
    assert kinds_of(facts_of(START + f"show({expression})\n")) == kinds


@pytest.mark.parametrize(
    ("bases", "kind"),
    [
        ("nn.Module", "module"),
        ("torch.nn.modules.loss._Loss", "criterion"),
        ("Dataset", "dataset"),
        ("Sampler", "sampler"),
        ("optim.Optimizer", "optimizer"),
        ("optim.SGD", "optimizer"),
        ("optim.lr_scheduler._LRScheduler", "scheduler"),
        ("DataLoader", "loader"),
        ("Mixin, nn.Module", "module"),
    ],
)
def test_an_instance_is_what_its_class_derives_from(facts_of, bases, kind):
    facts = facts_of(START + f"class Mixin: ...\nclass A({bases}): ...\nclass B(A): ...\nshow(B())\n")

    assert kinds_of(facts) == {kind}


def test_a_helper_class_is_no_thing(facts_of):
    assert kinds_of(facts_of(START + "class A: ...\nshow(A())\n")) == set()


def test_a_class_with_a_base_that_is_nowhere_is_a_module_if_it_has_a_forward(facts_of):
    facts = facts_of(START + "class A(base.Nowhere):\n    def forward(self, x): ...\nshow(A())\n")

    assert kinds_of(facts) == {"module"}


def test_the_nearest_class_gives_the_method(facts_of):
    facts = facts_of(
        START
        + """
class A:
    def make(self):
        return None
    def get(self):
        return self.make()

class B(A):
    def make(self):
        return net

show(B().get())
"""
    )

    assert kinds_of(facts) == {"module"}
