"""What the schema of an operator says about its arguments and results."""

from __future__ import annotations

import pytest
import torch

from porting.capture.operator_schema import (
    change_arguments,
    device_tensors,
    list_leaves,
    map_leaves,
    operator_name,
    result_argument,
    written_arguments,
)

aten = torch.ops.aten


def batch_norm(training):
    return ("x", "weight", "bias", "mean", "variance", training, 0.1, 1e-5, True)


@pytest.mark.parametrize(
    ("operator", "name"),
    [(aten.add.Tensor, "add"), (aten.add_.Tensor, "add_"), (aten.linear.default, "linear")],
)
def test_the_name_is_that_without_namespace_and_overload(operator, name):
    assert operator_name(operator) == name


@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "written"),
    [
        (aten.add.Tensor, ("x", "y"), {}, []),
        (aten.add_.Tensor, ("x", "y"), {}, ["x"]),
        (aten.add.out, ("x", "y"), {"out": "z"}, ["z"]),
        (aten.index_put_.default, ("x", ["i"], "v"), {}, ["x"]),
        (aten.batch_norm.default, batch_norm(True), {}, ["mean", "variance"]),
        (aten.batch_norm.default, batch_norm(False), {}, []),
        (aten.instance_norm.default, batch_norm(True), {}, ["mean", "variance"]),
    ],
)
def test_the_arguments_that_an_operator_writes_to(operator, args, kwargs, written):
    assert written_arguments(operator, args, kwargs) == written


@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "result"),
    [
        (aten.add.Tensor, ("x", "y"), {}, None),
        (aten.add_.Tensor, ("x", "y"), {}, "x"),
        (aten.add.out, ("x", "y"), {"out": "z"}, "z"),
        (aten.view.default, ("x", [1]), {}, None),
    ],
)
def test_the_argument_that_comes_back_as_the_result(operator, args, kwargs, result):
    assert result_argument(operator, 0, args, kwargs) == result


def test_several_results_come_back_in_their_order():
    args, out = ("x", 1), {"values": "v", "indices": "i"}

    assert [result_argument(aten.sort.values, index, args, out) for index in (0, 1)] == ["v", "i"]


def test_arguments_are_changed_by_name_wherever_they_stand():
    changed = change_arguments(aten.gather.default, ("x", 1), {"index": "i"}, ["index", "self"], str.upper)

    assert changed == (("X", 1), {"index": "I"})


def test_arguments_that_are_not_given_are_left_out():
    assert change_arguments(aten.gather.default, ("x", 1, "i"), {}, ["sparse_grad"], str) == (("x", 1, "i"), {})


def test_leaves_are_what_is_mapped_in_the_same_order():
    value = ((1, [2, None], torch.float32), {"dim": [3], "other": (4,)})
    seen = []

    map_leaves(seen.append, value)

    assert seen == list_leaves(value) == [1, 2, None, torch.float32, 3, 4]


def test_the_form_stays():
    value = ([1, (2,)], {"a": [3]})

    assert map_leaves(lambda leaf: leaf + 1, value) == ([2, (3,)], {"a": [4]})


def test_sizes_are_leaves():
    size = torch.Size([1, 2])

    assert list_leaves([size]) == [size]


def test_host_tensors_are_no_device_tensors():
    assert device_tensors([torch.ones(1), 2]) == []
