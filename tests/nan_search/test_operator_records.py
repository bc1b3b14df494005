"""The search goes back from what came out to the first operator whose own inputs were finite."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from porting.nan_search.operator_records import OperatorRecords
from porting.observe.watcher import NamedValue, WatchedOperator

INFINITY = float("inf")


class Told:
    """Records that are told of functions as they run."""

    def __init__(self) -> None:
        self.records = OperatorRecords()

    def run(self, name: str, function: Any, *inputs: NamedValue, **settings: Any) -> torch.Tensor:
        ranges = self.records.begin(inputs)
        result: torch.Tensor = function(*(value.tensor for value in inputs))
        self.records.end(WatchedOperator(name, "layer"), inputs, ranges, [(name, result)], **settings)
        return result


def named(name: str, tensor: torch.Tensor, kind: str = "") -> NamedValue:
    return NamedValue(name, tensor, kind)


def test_the_first_operator_that_makes_it_is_named_and_not_those_after_it() -> None:
    told = Told()
    logarithm = told.run("log", torch.log, named("x", torch.tensor([-1.0, 1.0]), "input"))

    loss = told.run("sum", torch.sum, named("log", logarithm))

    fault = told.records.find("loss", loss)
    assert fault is not None
    assert fault.operator == WatchedOperator("log", "layer")
    assert fault.message == "`log` of the forward pass makes NaN of finite values"
    assert [value.name for value in fault.inputs] == ["x"]


def test_a_finite_value_has_no_fault() -> None:
    told = Told()

    assert told.records.find("loss", told.run("exp", torch.exp, named("x", torch.ones(2), "input"))) is None


@pytest.mark.parametrize(("kind", "words"), [("input", "the batch `x`"), ("parameter", "the weight `x`")])
def test_what_was_not_finite_before_is_told_with_where_it_goes(kind: str, words: str) -> None:
    told = Told()
    result = told.run("exp", torch.exp, named("x", torch.tensor([float("nan")]), kind))

    fault = told.records.find("loss", result)

    assert fault is not None
    assert (fault.phase, fault.operator) == ("before", None)
    assert fault.message == f"{words} holds NaN before the call"
    assert fault.notes[-1] == "it goes into `exp` of `layer`"


def test_an_infinity_that_the_program_names_is_meant() -> None:
    told = Told()
    masked = told.run("fill", lambda x: torch.full_like(x, -INFINITY), named("x", torch.ones(2)), names_infinity=True)

    assert told.records.find("output 0", masked, allows_meant=True) is None
    assert told.records.find("output 0", masked) is not None


def test_what_is_made_of_meant_infinities_alone_is_told_with_where_they_come_from() -> None:
    told = Told()
    masked = told.run("fill", lambda x: torch.full_like(x, -INFINITY), named("x", torch.ones(2)), names_infinity=True)

    fault = told.records.find("loss", told.run("softmax", lambda x: x.softmax(0), named("mask", masked)))

    assert fault is not None
    assert fault.operator == WatchedOperator("softmax", "layer")
    assert fault.notes == ("infinities in it come from `fill`, and are meant there",)


def test_memory_that_is_filled_with_finite_values_is_forgotten() -> None:
    told = Told()
    value = told.run("log", torch.log, named("x", torch.tensor([-1.0])))
    told.run("zero", lambda x: x.zero_(), named("log", value))
    value.fill_(INFINITY)

    fault = told.records.find("loss", value)

    assert fault is not None
    assert fault.operator is None


def test_a_view_is_no_maker() -> None:
    told = Told()
    value = told.run("log", torch.log, named("x", torch.tensor([[-1.0, 1.0]])))

    fault = told.records.find("loss", told.run("view", lambda x: x.view(-1), named("log", value)))

    assert fault is not None
    assert fault.operator == WatchedOperator("log", "layer")


def test_float16_is_told_where_it_ends() -> None:
    told = Told()
    value = told.run("mul", lambda x: x * 10, named("x", torch.tensor([6e4], dtype=torch.float16)))

    fault = told.records.find("loss", value)

    assert fault is not None
    assert fault.help[0].startswith("float16 ends at 65504")
