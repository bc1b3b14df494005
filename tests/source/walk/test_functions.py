"""Functions, methods and classes of the program's: what they are given, and what they give back."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts, Kind

START = """
import functools
import torch
from torch import nn
from torch.utils.data import DataLoader
net = nn.Linear(3, 2)
criterion = nn.MSELoss()
x = torch.zeros(2, 3)
"""


def kinds_of(facts: Facts, method: str = "cuda") -> Set[Kind]:
    return {one.kind for call in facts.calls if call.is_method(method) for one in call.receiver}


@pytest.mark.parametrize(
    "program",
    [
        "def f(m):\n    m.cuda()\nf(net)\n",
        "def f(*, m):\n    m.cuda()\nf(m=net)\n",
        "def f(*args):\n    args[0].cuda()\nf(net)\n",
        "def f(**kw):\n    kw['m'].cuda()\nf(m=net)\n",
        "def f(m=net):\n    m.cuda()\nf()\n",
        "def f(n):\n    return net\nf(3).cuda()\n",
        "def f():\n    return 1, net\n_, m = f()\nm.cuda()\n",
        "def f():\n    return {'m': net}\nf()['m'].cuda()\n",
        "def outer():\n    m = net\n    def inner():\n        m.cuda()\n    inner()\nouter()\n",
        "def outer():\n    m = None\n    def inner():\n        nonlocal m\n        m = net\n"
        "    inner()\n    m.cuda()\nouter()\n",
        "def log(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
        "@log\ndef f(m):\n    return m\nf(net).cuda()\n",
        "f = lambda m: m\nf(net).cuda()\n",
        "class A:\n    def __init__(self, m):\n        self.m = m\n    def go(self):\n"
        "        self.m.cuda()\nA(net).go()\n",
        "class A:\n    m = net\n    @classmethod\n    def go(cls):\n        cls.m.cuda()\nA.go()\n",
        "class A:\n    @staticmethod\n    def go(m):\n        m.cuda()\nA.go(net)\n",
        "class A:\n    @property\n    def m(self):\n        return net\nA().m.cuda()\n",
        "class A:\n    def __call__(self):\n        return net\nA()().cuda()\n",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    n: int\n    m: object\nA(1, net).m.cuda()\n",
        "class A:\n    def make(self):\n        self.m = net\n    def go(self):\n        self.m.cuda()\n"
        "a = A()\na.make()\na.go()\n",
        "models = [net for _ in range(3)]\nfor m in models:\n    m.cuda()\n",
        "registry = {'linear': lambda: net}\nregistry[name]().cuda()\n",
        "registry = {}\ndef register(f):\n    registry[f.__name__] = f\n    return f\n@register\n"
        "def make():\n    return net\nregistry[n]().cuda()\n",
    ],
)
def test_a_value_comes_through(facts_of, program):
    assert kinds_of(facts_of(START + program)) == {Kind.MODULE}


def test_recursion_ends(facts_of):
    facts = facts_of(START + "def f(m, n):\n    if n:\n        return f(m, n - 1)\n    return m\nf(net, 3).cuda()\n")

    assert kinds_of(facts) == {Kind.MODULE}


def test_functions_that_call_each_other_end(facts_of):
    assert facts_of("def a(x):\n    return b(x)\ndef b(x):\n    return [a(x), a(x)]\na(1)\nb(2)\n").calls


def test_two_instances_have_attributes_of_their_own(facts_of):
    facts = facts_of(
        START
        + """
class Holder:
    def __init__(self, held):
        self.held = held

first, second = Holder(net), Holder(criterion)
first.held.cuda()
second.held.half()
"""
    )

    assert (kinds_of(facts, "cuda"), kinds_of(facts, "half")) == ({Kind.MODULE}, {Kind.CRITERION})


def test_each_call_of_a_maker_makes_an_object_of_its_own(facts_of):
    facts = facts_of(
        START
        + """
def make(module):
    return torch.optim.SGD(module.parameters(), 0.1)

first, second = make(net), make(nn.Linear(1, 1))
"""
    )

    assert len({optimizer.parts[0].parts for optimizer in facts.list_program_objects(Kind.OPTIMIZER)}) == 2
    assert len([call for call in facts.calls if call.name == "torch.optim.SGD"]) == 1


@pytest.mark.parametrize(
    ("parameter", "body", "kind"),
    [
        ("thing", "thing.zero_grad(); thing.step()", "optimizer"),
        ("thing", "thing.parameters()", "module"),
        ("thing", "thing.backward()", "loss"),
        ("thing", "thing.eval(); thing(3)", "module"),
        ("model", "use(model)", "module"),
        ("optimizer", "optimizer.step()", "optimizer"),
        ("train_loader", "use(train_loader)", "loader"),
        ("criterion", "use(criterion)", "criterion"),
        ("lr_scheduler", "lr_scheduler.step()", "scheduler"),
        ("batch", "use(batch)", "batch"),
        ("optimizer=None", "optimizer.step()", "optimizer"),
    ],
)
def test_parameters_of_functions_that_nobody_calls_are_guessed(facts_of, parameter, body, kind):
    facts = facts_of(f"def train(a, {parameter}):\n    {body}\n")

    assert kind in {one.kind.value for one in facts.objects}


@pytest.mark.parametrize("parameter", ["opt", "args", "config", "x", "name"])
def test_other_parameters_are_not(facts_of, parameter):
    assert facts_of(f"def train({parameter}):\n    use({parameter}.lr)\n").objects == []


@pytest.mark.parametrize(
    "program",
    [
        "import hydra\n@hydra.main(config_path='.')\ndef main(cfg):\n    net.cuda()\nmain()\n",
        "import click\n@click.command()\n@click.option('--lr')\ndef main(lr):\n    net.cuda()\nmain()\n",
        "import torch.multiprocessing as mp\ndef work(rank, m):\n    m.cuda()\nmp.spawn(work, args=(net,))\n",
        "@torch.jit.script\ndef f(m):\n    return m\nf(net).cuda()\n",
    ],
)
def test_functions_that_libraries_wrap_or_call_are_walked(facts_of, program):
    assert kinds_of(facts_of(START + program)) == {Kind.MODULE}


def test_a_forward_without_a_second_parameter_may_take_a_tensor_by_name(facts_of):
    program = "class Net(nn.Module):\n    def forward(self, *, x):\n        return x.cuda()\nnet = Net()\nnet()\n"

    facts = facts_of(START + program)

    assert kinds_of(facts) == {Kind.TENSOR}
