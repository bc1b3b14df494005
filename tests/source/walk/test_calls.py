"""Who is called, on what, with what, and what comes out."""

from __future__ import annotations

from typing import List

import pytest

from porting.source import Facts, Kind
from porting.source.facts import Call

START = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

net, optimizer = nn.Linear(3, 2), None
loader = DataLoader([1], batch_size=2)
criterion = nn.CrossEntropyLoss()
x = torch.zeros(2, 3)
"""


def calls_of(facts: Facts, name: str) -> List[Call]:
    return [call for call in facts.calls if call.name == name or name in call.other_names]


def only(facts: Facts, name: str) -> Call:
    (call,) = calls_of(facts, name)
    return call


def kinds(objects: tuple) -> List[str]:
    return sorted({one.kind.value for one in objects})


@pytest.mark.parametrize(
    ("expression", "name", "result"),
    [
        ("net(x)", "torch.nn.Linear", ["module", "output"]),
        ("criterion(net(x), x)", "torch.nn.CrossEntropyLoss", ["criterion", "loss"]),
        ("F.cross_entropy(net(x), x)", "torch.nn.functional.cross_entropy", ["loss"]),
        ("torch.optim.SGD(net.parameters(), 0.1)", "torch.optim.SGD", ["optimizer"]),
        ("net(x).max(1)", ".max", ["output"]),
        ("torch.cat([net(x), x])", "torch.cat", ["output"]),
        ("criterion(net(x), x).item()", ".item", []),
        ("net(x).detach().cpu().numpy()", ".numpy", []),
        ("net.to('cuda').half()", ".half", ["module"]),
        ("net.state_dict()", ".state_dict", ["state"]),
        ("iter(loader)", "builtins.iter", ["loader"]),
        ("next(iter(loader))", "builtins.next", ["batch"]),
        ("getattr(net, 'parameters')()", ".parameters", ["parameters"]),
        ("(lambda a: net(a))(x)", "train.<lambda>", ["output"]),
        ("nn.DataParallel(net)(x)", "torch.nn.DataParallel", ["module", "output"]),
        ("open('log.txt', 'w')", "builtins.open", ["writer"]),
        ("torch.load('a.pt')", "torch.load", ["state"]),
        ("unknown(net)", "unknown", []),
        ("unknown.method(net)", ".method", []),
    ],
)
def test_a_call_says_what_comes_out(facts_of, expression, name, result):
    facts = facts_of(START + f"value = {expression}\n")

    assert kinds(tuple(one for call in calls_of(facts, name) for one in call.result)) == result


def test_a_construction_and_a_call_differ_by_the_receiver(facts_of):
    made, called = calls_of(facts_of(START + "net(x)\n"), "torch.nn.Linear")

    assert (kinds(made.receiver), kinds(made.result)) == ([], ["module"])
    assert (kinds(called.receiver), kinds(called.result)) == (["module"], ["output"])


def test_arguments_come_by_position_and_name(facts_of):
    call = calls_of(facts_of(START + "criterion(net(x), target=x)\n"), "torch.nn.CrossEntropyLoss")[1]

    assert [kinds(objects) for objects in call.arguments] == [["output"]]
    assert kinds(call.keywords["target"]) == ["tensor"]


def test_an_object_knows_the_call_that_made_it(facts_of):
    (loader,) = facts_of(START).list_program_objects(Kind.LOADER)

    assert [keyword.arg for keyword in loader.call.node.keywords] == ["batch_size"]


def test_a_function_named_after_a_loss_is_a_criterion(facts_of):
    facts = facts_of(START + "import porting\ndef my_loss(a, b): ...\nporting.to_ipu(net, my_loss)\n")

    assert kinds(only(facts, "porting.to_ipu").arguments[1]) == ["criterion"]


def test_partial_calls_the_function_with_both_arguments(facts_of):
    facts = facts_of(START + "from functools import partial\nloss = partial(F.mse_loss, net(x))(x)\nloss.backward()\n")

    assert only(facts, ".backward").is_on(Kind.LOSS)


def test_super_calls_the_method_of_the_class_above(facts_of):
    facts = facts_of(
        START
        + """
class Base:
    def __init__(self, model):
        self.model = model

class Trainer(Base):
    def __init__(self, model):
        super().__init__(model)
        self.out = self.model(x)

Trainer(net)
"""
    )

    _made, called = calls_of(facts, "torch.nn.Linear")
    assert (kinds(called.receiver), called.where.function) == (["module"], "train.Trainer.__init__")


def test_a_method_is_found_where_one_class_alone_has_it(facts_of):
    facts = facts_of(
        START
        + """
class Engine:
    def optimize_parameters(self):
        criterion(net(x), x).backward()

engine = find_engine_somewhere()
for epoch in range(3):
    engine.optimize_parameters()
"""
    )

    assert [loop.kind.value for loop in only(facts, ".backward").where.loops] == ["epochs"]


def test_stars_give_what_they_hold(facts_of):
    facts = facts_of(
        START
        + """
def step(model, loss, batch):
    loss(model(batch), batch).backward()

parts = [net, criterion]
step(*parts, **{"batch": x})
"""
    )

    assert only(facts, ".backward").is_on(Kind.LOSS)
