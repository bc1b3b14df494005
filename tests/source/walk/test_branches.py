"""Branches: what is true after one of several was taken."""

from __future__ import annotations

from typing import List

import pytest

from porting.source import Facts

START = """
import torch
from torch import nn
net, criterion = nn.Linear(3, 2), nn.MSELoss()
"""


def kinds_of(facts: Facts) -> List[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return sorted({one.kind.value for one in call.arguments[0]}) if call.arguments else []


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        ("m = net\nif a:\n    m = criterion\nshow(m)\n", ["criterion", "module"]),
        ("if a:\n    m = net\nelif b:\n    m = criterion\nelse:\n    raise E\nshow(m)\n", ["criterion", "module"]),
        ("m = None\nif m is None:\n    m = net\nelse:\n    m = criterion\nshow(m)\n", ["module"]),
        ("m = net\nif m is not None:\n    m = criterion\nshow(m)\n", ["criterion"]),
        ("flag = False\nm = net\nif flag:\n    m = criterion\nshow(m)\n", ["module"]),
        ("flag = False\nm = net\nif not flag:\n    m = criterion\nshow(m)\n", ["criterion"]),
        (
            "flag = False\nif a:\n    flag = True\nm = net\nif flag:\n    m = criterion\nshow(m)\n",
            ["criterion", "module"],
        ),
        ("def f(m=None):\n    if m is None:\n        return net\n    return criterion\nshow(f())\n", ["module"]),
        ("def f():\n    if a:\n        return net\n    return criterion\nshow(f())\n", ["criterion", "module"]),
        ("m = net if a else criterion\nshow(m)\n", ["criterion", "module"]),
    ],
)
def test_after_branches_a_name_is_what_any_left(facts_of, program, kinds):
    assert kinds_of(facts_of(START + program)) == kinds


def test_what_happens_in_a_branch_that_is_not_taken_is_a_fact_all_the_same(facts_of):
    facts = facts_of(START + "flag = False\nif flag:\n    show(net)\n")

    assert kinds_of(facts) == ["module"]


def test_an_attribute_set_before_a_return_is_kept(facts_of):
    facts = facts_of(
        START
        + """
class A:
    def build(self):
        if a:
            self.m = net
            return
        self.m = criterion

one = A()
one.build()
show(one.m)
"""
    )

    assert kinds_of(facts) == ["criterion", "module"]
