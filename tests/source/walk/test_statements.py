"""Statements, and where they stand: under which tests, in which loops, with or without gradients."""

from __future__ import annotations

import ast

import pytest

from porting.source import Facts, Kind
from porting.source.facts import Call, Statement
from porting.source.files import read_source

START = """
import torch
from torch import nn
net = nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
criterion = nn.MSELoss()
x = torch.zeros(2, 3)
loss = criterion(net(x), x)
"""


def method(facts: Facts, name: str) -> Call:
    (call,) = [call for call in facts.calls if call.is_method(name)]
    return call


def statement(facts: Facts, text: str) -> Statement:
    units = {one.place.file: read_source(one.place.file).units[0] for one in facts.statements}
    (found,) = [one for one in facts.statements if units[one.place.file].text_at(one.place) == text]
    return found


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("x == loss", {"loss"}),
        ("y = net(x)", {"output"}),
        ("net.x = x", {"tensor"}),
        ("del loss", {"loss"}),
        ("loss += loss", {"loss"}),
        ("y: int = loss", {"loss"}),
    ],
)
def test_a_statement_has_the_objects_of_its_value(facts_of, text, kinds):
    facts = facts_of(START + text + "\n")

    assert {one.kind.value for one in statement(facts, text).objects} == kinds


def test_the_test_of_an_if_and_a_while_is_a_statement(facts_of):
    facts = facts_of(START + "if loss > 1:\n    pass\nwhile x.sum() > 0:\n    break\n")

    assert isinstance(statement(facts, "loss > 1").node, ast.If)
    assert {one.kind for one in statement(facts, "x.sum() > 0").objects} == {Kind.TENSOR}


def test_an_assignment_knows_what_it_assigns_to(facts_of):
    facts = facts_of(START + "for group in optimizer.param_groups:\n    group['lr'] = 0.1\nx = loss\n")

    assert {one.kind for one in statement(facts, "group['lr'] = 0.1").targets} == {Kind.PARAMETERS}
    assert {one.kind for one in statement(facts, "x = loss").targets} == {Kind.TENSOR}


def guards_of(facts: Facts) -> list:
    guards = method(facts, "backward").where.guards
    return [(isinstance(guard, ast.UnaryOp), ast.dump(getattr(guard, "operand", guard))) for guard in guards]


@pytest.mark.parametrize(
    ("program", "negated"),
    [
        ("if a:\n    loss.backward()\n", [False]),
        ("if a:\n    pass\nelse:\n    loss.backward()\n", [True]),
        ("def f():\n    if a:\n        return\n    loss.backward()\nf()\n", [True]),
        ("for i in range(3):\n    if a:\n        continue\n    loss.backward()\n", [True]),
        ("def f():\n    loss.backward()\nif a:\n    f()\n", [False]),
        ("def f():\n    loss.backward()\nif a:\n    f()\nf()\n", []),
        ("if __name__ == '__main__':\n    loss.backward()\n", []),
        ("if a:\n    exit()\nloss.backward()\n", [True]),
    ],
)
def test_guards_are_the_tests_that_have_to_hold(facts_of, program, negated):
    guards = guards_of(facts_of(START + program))

    assert [is_negated for is_negated, _test in guards] == negated


@pytest.mark.parametrize(
    "program",
    [
        "with torch.no_grad():\n    loss.backward()\n",
        "with torch.inference_mode(), other():\n    loss.backward()\n",
        "@torch.no_grad()\ndef f():\n    loss.backward()\nf()\n",
        "with torch.set_grad_enabled(False):\n    loss.backward()\n",
        "def f():\n    loss.backward()\nwith torch.no_grad():\n    f()\n",
    ],
)
def test_what_stands_without_gradients(facts_of, program):
    assert method(facts_of(START + program), "backward").where.without_gradients


def test_a_function_called_with_and_without_gradients_has_them(facts_of):
    facts = facts_of(START + "def f():\n    loss.backward()\nwith torch.no_grad():\n    f()\nf()\n")

    assert not method(facts, "backward").where.without_gradients


@pytest.mark.parametrize(
    ("program", "is_evaluation"),
    [
        ("net.eval()\nloss.backward()\n", True),
        ("net.train(False)\nloss.backward()\n", True),
        ("net.eval()\nnet.train()\nloss.backward()\n", False),
        ("if a:\n    net.eval()\nloss.backward()\n", False),
        ("for e in range(3):\n    net.train()\n    loss.backward()\n    net.eval()\n", False),
    ],
)
def test_what_stands_in_evaluation(facts_of, program, is_evaluation):
    assert method(facts_of(START + program), "backward").where.in_evaluation is is_evaluation


def test_branches_join(facts_of):
    facts = facts_of(START + "if a:\n    m = net\nelse:\n    m = criterion\nm.cuda()\n")

    assert {one.kind for one in method(facts, "cuda").receiver} == {Kind.MODULE, Kind.CRITERION}


def test_a_branch_that_leaves_is_not_joined(facts_of):
    facts = facts_of(START + "m = net\nif a:\n    m = criterion\n    raise ValueError\nm.cuda()\n")

    assert {one.kind for one in method(facts, "cuda").receiver} == {Kind.MODULE}


def test_what_an_exception_interrupts_may_have_happened(facts_of):
    facts = facts_of(START + "m = net\ntry:\n    m = criterion\nexcept Error as e:\n    m.cuda()\n")

    assert {one.kind for one in method(facts, "cuda").receiver} == {Kind.MODULE, Kind.CRITERION}


def test_global_names_are_the_modules(facts_of):
    facts = facts_of(START + "model = None\ndef make():\n    global model\n    model = net\nmake()\nmodel.cuda()\n")

    assert Kind.MODULE in {one.kind for one in method(facts, "cuda").receiver}


def test_match_joins_its_cases(facts_of):
    if not hasattr(ast, "Match"):
        pytest.skip("a statement of Python 3.10")
    facts = facts_of(START + "match a:\n    case 1:\n        m = net\n    case _:\n        m = criterion\nm.cuda()\n")

    assert {one.kind for one in method(facts, "cuda").receiver} == {Kind.MODULE, Kind.CRITERION}
