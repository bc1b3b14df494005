"""The search goes back along gradients that are not finite to the operator whose derivative made them."""

from __future__ import annotations

from typing import Any, List

import torch

from porting.nan_search.gradient_records import GradientRecords
from porting.nan_search.value_ranges import measure_range
from porting.observe.watcher import WatchedOperator


class Told:
    """Records that are told of functions as they run."""

    def __init__(self) -> None:
        self.records = GradientRecords()

    def run(self, name: str, function: Any, *inputs: torch.Tensor) -> torch.Tensor:
        ranges = tuple(measure_range(f"input of {name}", tensor) for tensor in inputs)
        result: torch.Tensor = function(*inputs)
        self.records.take_over(WatchedOperator(name, "layer"), ranges, [result])
        return result


def make_weight(values: List[float]) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True)


def test_the_operator_whose_derivative_is_infinite_is_named() -> None:
    told, weight = Told(), make_weight([0.0, 1.0])
    root = told.run("sqrt", torch.sqrt, told.run("mul", lambda x: x * 2, weight))

    told.run("sum", torch.sum, root).backward()

    fault = told.records.find("weight", weight)
    assert fault is not None
    assert (fault.phase, fault.name, fault.operator) == ("backward", "weight", WatchedOperator("sqrt", "layer"))
    assert fault.message == "the derivative of `sqrt` in the backward pass makes infinity of finite gradients"
    assert [value.name for value in fault.inputs] == ["gradient of the result", "input of sqrt"]


def test_a_finite_gradient_has_no_fault() -> None:
    told, weight = Told(), make_weight([1.0])

    told.run("sum", torch.sum, told.run("sqrt", torch.sqrt, weight)).backward()

    assert told.records.find("weight", weight) is None


def test_a_parameter_without_a_gradient_has_no_fault() -> None:
    assert GradientRecords().find("weight", make_weight([1.0])) is None


def test_a_sum_of_finite_gradients_may_be_beyond_the_type() -> None:
    told, weight = Told(), make_weight([1.0])
    told.run("sum", torch.sum, told.run("mul", lambda x: x * 2, weight)).backward()
    assert weight.grad is not None
    weight.grad.fill_(float("inf"))

    fault = told.records.find("weight", weight)

    assert fault is not None
    assert fault.operator is None
    assert "though each part that it is the sum of is" in fault.message


def test_the_fault_is_that_of_the_parameter_that_is_asked_for() -> None:
    told, good, bad = Told(), make_weight([1.0]), make_weight([0.0])
    joined = told.run("add", torch.add, told.run("exp", torch.exp, good), told.run("sqrt", torch.sqrt, bad))

    told.run("sum", torch.sum, joined).backward()

    assert told.records.find("good", good) is None
    fault = told.records.find("bad", bad)
    assert fault is not None
    assert fault.operator == WatchedOperator("sqrt", "layer")
