"""Names without a value on one of the paths."""

from __future__ import annotations

import ast
import textwrap

from porting.source.rules.paths import collect_attributes_of_training, iter_unbound_uses


def find(body: str):
    tree = ast.parse("def step(self, x, net):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    return [(use.id, use.lineno) for use in iter_unbound_uses(function)]


def test_a_name_that_one_branch_leaves_out():
    body = """
        if net is None:
            loss = x
        if self.ipu:
            return loss
    """

    assert find(body) == [("loss", 5)]


def test_a_name_set_under_the_same_condition():
    body = """
        if self.ipu:
            loss = x
        y = x
        if self.ipu:
            return loss, y
    """

    assert find(body) == []


def test_a_branch_that_leaves_needs_to_set_nothing():
    body = """
        if net is None:
            return x
        else:
            loss = x
        if self.ipu:
            return loss
    """

    assert find(body) == []


def test_only_what_stands_under_a_ports_condition_counts():
    body = """
        if net is None:
            loss = x
        if self.verbose:
            return loss
    """

    assert find(body) == []


def test_attributes_that_only_training_sets():
    tree = ast.parse(
        textwrap.dedent(
            """
            class Trainer:
                def initialize(self):
                    self.net = 1
                    if self.is_training():
                        self.loss = 2
                        self.net = 3
            """
        )
    )

    assert collect_attributes_of_training(tree) == {"loss"}
