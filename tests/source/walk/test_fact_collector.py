"""Program objects and facts are merged, and losses that are known by their `backward` alone."""

from __future__ import annotations

import ast

import pytest

from porting.diagnostics import Place
from porting.source import Kind
from porting.source.facts import Call, Loop, LoopKind, Where
from porting.source.walk.fact_collector import FactCollector

PLACE = Place("train.py", 1)


def test_an_object_of_a_key_is_made_once():
    collector = FactCollector()
    first = collector.make_object("key", Kind.MODULE, name="a", place=PLACE)
    part = collector.make_object("part", Kind.DATASET, name="b", place=PLACE)

    assert collector.make_object("key", Kind.MODULE, name="a", place=PLACE, parts=(part,)) is first
    assert first.parts == (part,)


def test_an_object_is_never_made_of_itself():
    collector = FactCollector()
    first = collector.make_object("first", Kind.LOSS, name="a", place=PLACE)
    second = collector.make_object("second", Kind.LOSS, name="b", place=PLACE, parts=(first,))
    collector.add_parts(first, (second, first))

    assert first.parts == ()


def make_call(node: ast.Call, *, guards: tuple = (), loops: tuple = (), without_gradients: bool = False) -> Call:
    where = Where("train.py", guards=guards, loops=loops, without_gradients=without_gradients)
    return Call(node, PLACE, "f", where)


def test_a_call_that_is_walked_twice_stands_under_the_guards_of_both_and_in_all_loops():
    collector, node, guard = FactCollector(), ast.Call(), ast.Name("a")
    loop = Loop(ast.For(), LoopKind.EPOCHS)
    call = make_call(node, guards=(guard,), without_gradients=True)
    collector.add_call(call)
    collector.merge_call(call, make_call(node, loops=(loop,)))

    assert collector.finish().calls == [call]
    assert (call.where.guards, call.where.loops, call.where.without_gradients) == ((), (loop,), False)


START = """
import torch
from torch import nn
net = nn.Linear(3, 2)
x, y = torch.zeros(2, 3), torch.zeros(2)
"""


@pytest.mark.parametrize(
    "program",
    [
        "loss = ((net(x) - y) ** 2).mean()\nloss.backward()\n",
        "loss = -(net(x).log() * y).sum()\n(loss / 3).backward()\n",
        "a = (net(x) - y).pow(2).mean()\nb = net(x).abs().sum()\nloss = a + 0.1 * b\nloss.backward()\n",
        "loss = torch.mean((net(x) - y) ** 2)\nloss.backward()\n",
        "def f(a, b):\n    return (a - b).abs().mean()\nloss = f(net(x), y)\nloss.backward()\n",
        "parts = []\nfor i in range(3):\n    parts.append(net(x).sum())\nloss = sum(parts)\nloss.backward()\n",
        "loss = 0\nfor i in range(3):\n    loss += net(x).mean()\nloss.backward()\n",
        "loss = net(x).mean()\ntorch.autograd.backward(loss)\n",
    ],
)
def test_what_is_computed_and_then_differentiated_is_a_loss(facts_of, program):
    facts = facts_of(START + program)
    losses = {one.place.line for one in facts.list_program_objects(Kind.LOSS)}
    plain = [fact for fact in facts.statements if isinstance(fact.node, ast.Assign) and fact.objects]
    assigned = [fact for fact in plain if getattr(fact.node.targets[0], "id", "") == "loss"]

    assert all(one.kind is Kind.LOSS for fact in assigned[-1:] for one in fact.objects)
    assert losses
    outputs = [call.result for call in facts.calls if call.name == "torch.nn.Linear" and call.receiver]
    assert {one.kind for objects in outputs for one in objects} == {Kind.OUTPUT}


def test_what_was_computed_of_a_loss_before_it_was_known_is_one(facts_of):
    facts = facts_of(START + "loss = net(x).mean()\ntotal = loss * 2\nloss.backward()\nlog(total)\n")
    (call,) = [call for call in facts.calls if call.name == "log"]

    assert {one.kind for one in call.arguments[0]} == {Kind.LOSS}


def test_an_output_that_nothing_differentiates_is_no_loss(facts_of):
    assert facts_of(START + "acc = (net(x) == y).float().mean()\n").list_program_objects(Kind.LOSS) == []


def test_a_module_whose_output_is_differentiated_returns_its_loss(facts_of):
    facts = facts_of(START + "loss = net(x, y)\nloss.backward()\n")
    (made,) = [call for call in facts.calls if call.name == "torch.nn.Linear" and call.receiver]

    assert {one.kind for one in made.result} == {Kind.LOSS}
