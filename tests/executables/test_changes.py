"""A change is told in plain words, with its place where that is a line."""

from __future__ import annotations

import json

import pytest

from porting.diagnostics import Place
from porting.executables.changes import Change, format_value, split_names


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("plan", "replicas", "1", "2"), "replicas 1 -> 2"),
        (Change("tensors", "a new input"), "a new input"),
        (Change("operator", "dropout p", "0.1", "0.2", where="at a.py:1"), "dropout p 0.1 -> 0.2 at a.py:1"),
        (Change("tensors", "type", "a", "b", detail="2 parameters"), "type a -> b (2 parameters)"),
    ],
)
def test_a_change_says_what_was_and_what_is(change, text):
    assert change.text == text


def test_only_a_line_of_a_file_is_a_place():
    assert Change("operator", "dropout p", file="a.py", line=3).place == Place("a.py", 3)
    assert Change("operator", "dropout p", file="a.py").place is None


def test_a_change_as_plain_values_survives_a_file():
    change = Change("operator", "dropout p", "0.1", "0.2", words=("p",), operator_place=("a.py", 3))

    plain = change.to_dict()

    assert json.loads(json.dumps(plain)) == plain
    assert plain["text"] == "dropout p 0.1 -> 0.2"


def test_long_values_are_cut_short():
    shown = format_value(list(range(100)))

    assert len(shown) == 60
    assert shown.endswith("...")


def test_numbers_and_the_endings_of_parameters_are_no_words():
    assert split_names("blocks.0.fc.weight", "blocks.1.norm.bias") == ("blocks", "fc", "norm")
