"""Values come back from JSON as they were, and what is no value is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch

from porting.capture.plain_values import UndescribableError, dtype_named, value_from_data, value_to_data
from porting.diagnostics import Place

VALUES = [
    None,
    True,
    2**70,
    0.1,
    math.inf,
    1 - 2j,
    "text",
    [1, (2, [3])],
    {"a": 1, 2: None},
    slice(0, None, 2),
    torch.float16,
    torch.device("cuda:1"),
    torch.strided,
    torch.channels_last,
    Place("train.py", 3),
]


def refuse_kind(kind, _content):
    raise KeyError(kind)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_from_json(value):
    data = json.loads(json.dumps(value_to_data(value), allow_nan=False))

    found = value_from_data(data, refuse_kind)

    assert found == value
    assert type(found) is type(value)


def test_not_a_number_comes_back():
    assert math.isnan(value_from_data(value_to_data(math.nan), refuse_kind))


def test_lists_and_tuples_can_be_written_alike():
    written = [value_to_data(value, tells_sequences_apart=False) for value in ([1, [2]], (1, (2,)))]

    assert written == [[1, [2]], [1, [2]]]


def test_what_has_no_description_is_named():
    with pytest.raises(UndescribableError) as raised:
        value_to_data([1, range(3)])

    assert raised.value.value == range(3)


@pytest.mark.parametrize(
    "data", [[1], {}, {"list": 1}, {"dtype": "Tensor"}, {"place": ["a"]}, {"flag": "no"}, {"a": 1, "b": 2}]
)
def test_what_describes_no_value_is_refused(data):
    with pytest.raises((AttributeError, LookupError, RuntimeError, TypeError, ValueError)):
        value_from_data(data, refuse_kind)


@pytest.mark.parametrize("name", ["Tensor", "no_such_type", "float32.x", 3, None])
def test_what_is_no_type_is_refused(name):
    with pytest.raises(ValueError, match="there is no type"):
        dtype_named(name)
