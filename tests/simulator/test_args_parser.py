"""Binding arguments to `forward`'s parameters, and comparing later calls with the first."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest
import torch
from torch import nn

from porting.simulator._args_parser import ArgsParser, CompiledSignature
from porting.simulator.errors import Error

ADVICE = "This error occurred because the inputs passed at runtime don't match the inputs used to compile the model."
Pair = collections.namedtuple("Pair", "left right")


def bind(function, *args, **kwargs):
    return ArgsParser(function).bind(args, kwargs)


def check_second_call(function, first, second):
    CompiledSignature(bind(function, *first)).check(bind(function, *second))


def check_second_keywords(function, first, second):
    CompiledSignature(bind(function, **first)).check(bind(function, **second))


def one(x):
    del x


def two(a, b=None):
    del a, b


def anything(*args, **kwargs):
    del args, kwargs


def list_arguments(bound):
    return [*zip(bound.names, bound.positional), *bound.named.items()]


# -- binding


def test_arguments_are_listed_in_the_order_of_the_parameters_with_defaults():
    bound = bind(lambda a, b, c=3: None, 1, b=2)

    assert list_arguments(bound) == [("a", 1), ("b", 2), ("c", 3)]


def test_more_arguments_than_parameters_are_refused():
    with pytest.raises(
        AssertionError, match=re.escape("Too many arguments provided: expected ['a', 'b'] (2) but got 3")
    ):
        bind(two, 1, 2, 3)


@pytest.mark.parametrize(
    "forward", [lambda x, *, target=None: None, lambda x, *, target=None, **others: None, lambda x, **others: None]
)
def test_a_position_beyond_those_of_the_parameters_is_refused(forward):
    with pytest.raises(AssertionError, match=re.escape("Too many arguments provided: expected ['x'] (1) but got 2")):
        bind(forward, 1, 2)


def test_unknown_keywords_are_refused():
    with pytest.raises(AssertionError, match=re.escape("c is not a valid parameter.Allowed values are ['a', 'b']")):
        bind(two, 1, c=2)


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(AssertionError, match="Parameter a was passed more than once"):
        bind(two, 1, a=2)


def test_a_missing_mandatory_parameter_is_refused():
    with pytest.raises(Error, match="Mandatory parameter a missing"):
        bind(two, b=1)


def test_variadic_arguments_are_named_by_their_index():
    bound = bind(lambda a, *c: None, 1, 2, 3)

    assert bound.names == ["a", "*c[0]", "*c[1]"]


def test_parameters_after_variadic_ones_are_kept_by_name():
    bound = bind(lambda *c, b=5: None, 1)

    assert bound.named == {"b": 5}


def test_parameters_after_a_bare_star_are_passed_by_position_as_poptorch_does():
    bound = bind(lambda a, *, b=5: None, 1, b=2)

    assert bound.positional == [1, 2]


def test_what_cannot_be_called_has_no_arguments():
    with pytest.raises(TypeError, match="Expected a torch.nn.Module or a callable"):
        ArgsParser(3)


def test_variadic_keywords_are_kept_by_name():
    bound = bind(anything, 1, left=2, right=3)

    assert bound.named == {"left": 2, "right": 3}


def test_a_callable_without_signature_takes_anything():
    bound = bind(type("Opaque", (), {"__signature__": "none", "__call__": anything})(), 1, key=2)

    assert list_arguments(bound) == [("*args[0]", 1), ("key", 2)]


def test_tensor_defaults_are_ordinary_inputs():
    default = torch.ones(2)

    bound = bind(lambda x, scale=default: None, torch.zeros(2))

    assert bound.list_tensors()[1] is default


# -- later calls


def test_the_same_shapes_and_types_are_accepted_with_other_values():
    check_second_call(two, [torch.zeros(2), [1, "a"]], [torch.ones(2), [1, "a"]])


def test_an_error_ends_with_what_can_be_done():
    with pytest.raises(Error, match=re.escape(ADVICE) + ".*create a new inferenceModel / trainingModel wrapper"):
        check_second_call(one, [torch.zeros(2)], [torch.zeros(3)])


@pytest.mark.parametrize(
    ("function", "first", "second", "message"),
    [
        (
            anything,
            [1, 2],
            [1],
            "Number of positional arguments mismatch: expected 2 arguments but got 1.",
        ),
        (
            one,
            [torch.zeros(1)],
            [None],
            "Type mismatch for x: expected <class 'torch.Tensor'> but got <class 'NoneType'>.",
        ),
        (one, [(1,)], [[1]], "Type mismatch for x: expected <class 'tuple'> but got <class 'list'>."),
        (
            one,
            [torch.zeros(1)],
            [nn.Parameter(torch.zeros(1))],
            "Type mismatch for x: expected <class 'torch.Tensor'> but got <class 'torch.nn.parameter.Parameter'>.",
        ),
        (one, [(1, 2)], [(1,)], "Length mismatch for x: expected 2 elements but got 1."),
        (
            one,
            [{"a": 1, "c": 2}],
            [{"a": 1, "b": 2}],
            "Keys mismatch for x: Unexpected arguments: b. Missing arguments: c.",
        ),
        (
            one,
            [torch.zeros(1)],
            [torch.zeros(1, dtype=torch.int64)],
            "Data type mismatch for x: expected torch.float32 but got torch.int64.",
        ),
        (
            one,
            [torch.zeros(1)],
            [torch.zeros(2)],
            "Shape mismatch for x: expected torch.Size([1]) but got torch.Size([2]).",
        ),
        (
            one,
            [(1, {"k": torch.zeros(1)})],
            [(1, {"k": torch.zeros(2)})],
            "Shape mismatch for x[1][k]: expected torch.Size([1]) but got torch.Size([2]).",
        ),
        (
            one,
            [[torch.zeros(1), torch.zeros(1)]],
            [[torch.zeros(1)]],
            "Length mismatch for x: expected 2 elements but got 1.",
        ),
        (one, [5], [3], "Value mismatch for x: expected 5 but got 3."),
        (one, [[1, 2]], [[1, 3]], "Value mismatch for x: expected [1, 2] but got [1, 3]."),
    ],
)
def test_a_difference_is_named_with_what_was_expected(function, first, second, message):
    with pytest.raises(Error, match=re.escape(message)):
        check_second_call(function, first, second)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": 1, "z": 2}, {"x": 1}, "Keys mismatch for named arguments: Missing arguments: z."),
        ({"x": 1}, {"x": 1, "z": 2}, "Keys mismatch for named arguments: Unexpected arguments: z."),
        ({"x": 1}, {"x": 2}, "Value mismatch for x: expected 1 but got 2."),
    ],
)
def test_a_difference_of_keywords_is_named(first, second, message):
    with pytest.raises(Error, match=re.escape(message)):
        check_second_keywords(anything, first, second)


def test_lists_are_compared_by_their_tensors_only():
    check_second_call(one, [[torch.zeros(1), 1]], [[torch.ones(1), 2]])


def test_named_tuples_are_compared_item_by_item():
    with pytest.raises(Error, match=re.escape("Shape mismatch for x[1]")):
        check_second_call(one, [Pair(1, torch.zeros(1))], [Pair(1, torch.zeros(2))])


def test_the_order_of_a_dictionary_may_change():
    first = {"a": torch.zeros(1), "b": torch.zeros(2)}

    check_second_call(one, [first], [{"b": torch.zeros(2), "a": torch.zeros(1)}])


def test_tensors_come_in_the_order_of_the_first_dictionary():
    first = bind(one, {"a": torch.zeros(1), "b": torch.zeros(2)})

    second = bind(one, {"b": torch.ones(2), "a": torch.ones(1)})

    assert [len(tensor) for tensor in second.list_tensors(like=first)] == [1, 2]


def test_arrays_are_compared_by_all_elements():
    with pytest.raises(Error, match="Value mismatch for x"):
        check_second_call(one, [np.array([1, 2])], [np.array([1, 3])])


def test_an_object_is_equal_to_itself_even_if_it_says_otherwise():
    not_a_number = float("nan")

    check_second_call(one, [not_a_number], [not_a_number])


def test_the_memory_of_the_first_batch_is_not_kept():
    signature = CompiledSignature(bind(one, torch.zeros(1000)))

    assert signature.arguments.list_tensors()[0].device.type == "meta"


def test_a_model_stands_for_its_forward():
    class Model(torch.nn.Module):
        def forward(self, x, scale=2.0):
            return x * scale

    bound = ArgsParser(Model()).bind([], {"x": 1})

    assert list_arguments(bound) == [("x", 1), ("scale", 2.0)]
