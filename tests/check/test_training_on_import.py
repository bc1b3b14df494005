"""A backward pass that an import comes to is found, and one that it does not come to is not."""

from __future__ import annotations

import ast
import textwrap

import pytest

from porting.check.training_on_import import find_training_on_import

TRAINS = {
    "at the top level": "for x in data:\n    loss(x).backward()",
    "in a function that is called": "def train():\n    loss.backward()\ndef main():\n    train()\nmain()",
    "in a class body": "class A:\n    loss.backward()",
    "in an ordinary condition": "if fast:\n    loss.backward()",
}

DOES_NOT = {
    "under a main guard": "def main():\n    loss.backward()\nif __name__ == '__main__':\n    main()",
    "in a method": "class Trainer:\n    def fit(self):\n        loss.backward()",
    "in a function that is only handed on": "def closure():\n    loss.backward()\nregister(closure)",
    "in functions that call each other": "def a():\n    b()\ndef b():\n    a()\na()",
    "nowhere": "",
}


@pytest.mark.parametrize("text", TRAINS.values(), ids=TRAINS.keys())
def test_a_file_that_trains_when_it_is_imported_is_known(text):
    line = find_training_on_import(ast.parse(textwrap.dedent(text)))

    assert line is not None
    assert "backward" in text.splitlines()[line - 1]


@pytest.mark.parametrize("text", DOES_NOT.values(), ids=DOES_NOT.keys())
def test_a_file_that_only_defines_its_training_may_be_imported(text):
    assert find_training_on_import(ast.parse(textwrap.dedent(text))) is None
