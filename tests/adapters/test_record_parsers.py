"""A backend that looks into no dataclass is told how to, for all dataclasses that a model returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import porting.simulator as poptorch
from porting.adapters.record_parsers import teach_records


@dataclass(frozen=True)
class Inner:
    logits: torch.Tensor


@dataclass
class Outer:
    inner: Any
    note: str = "kept"


@pytest.fixture
def taught():
    """Give a function that teaches what a model returns, and all parsers by their classes."""

    def teach(value):
        parsers = {}
        teach_records(value, register=parsers.__setitem__, parser_class=poptorch.ICustomArgParser)
        return parsers

    return teach


def test_all_dataclasses_that_are_returned_are_taught(taught):
    parsers = taught((torch.ones(1), {"a": [Outer(Inner(torch.ones(1)))]}, "text"))

    assert set(parsers) == {Outer, Inner}
    assert all(isinstance(parser, poptorch.ICustomArgParser) for parser in parsers.values())


def test_a_model_without_dataclasses_teaches_nothing(taught):
    assert taught((torch.ones(1), {"a": [torch.ones(1)]})) == {}


def test_a_parser_takes_an_object_apart_and_puts_it_together(taught):
    value = Outer([Inner(torch.tensor(1)), torch.tensor(2)])
    parser = taught(value)[Outer]

    found = list(parser.yieldTensors(value))
    rebuilt = parser.reconstruct(value, iter([torch.tensor(3), torch.tensor(4)]))

    assert found == [torch.tensor(1), torch.tensor(2)]
    assert rebuilt == Outer([Inner(torch.tensor(3)), torch.tensor(4)])
