"""Parts of torch are found by their place; one that is missing costs what uses it, and says so."""

from __future__ import annotations

import pytest
import torch

from porting.torch_insides.parts import MissingPart, Parts, look_up

GONE = "torch._C:_no_such_part"


@pytest.fixture
def parts():
    return Parts("numbers are not added")


def test_a_part_that_is_there_is_itself(parts):
    assert parts.find("torch:Tensor.add") is torch.Tensor.add


def test_nothing_is_lost_where_all_parts_are_there(parts):
    parts.find("torch:add")

    assert parts.probe() == ""


def test_a_missing_part_is_replaced_by_what_is_given(parts):
    assert parts.find(GONE, instead=sum) is sum


def test_what_is_lost_is_said_with_the_part(parts):
    parts.find(GONE, instead=sum, loses="tensors are not added")

    assert parts.probe() == "no `torch._C._no_such_part`: tensors are not added"


def test_without_words_of_its_own_a_part_loses_what_its_subject_does(parts):
    parts.find(GONE)

    assert parts.probe() == "no `torch._C._no_such_part`: numbers are not added"


@pytest.mark.parametrize("use", [lambda part: part(1), lambda part: part.name])
def test_each_use_of_a_missing_part_is_an_error_that_names_it(parts, use):
    part = parts.find(GONE)

    with pytest.raises(MissingPart, match=r"no `torch._C._no_such_part`: numbers are not added"):
        use(part)


def test_a_class_can_be_derived_from_a_missing_part_but_not_made(parts):
    class Derived(parts.find(GONE)):
        pass

    with pytest.raises(MissingPart):
        Derived()


def test_nothing_is_an_instance_of_a_missing_part(parts):
    assert not isinstance(1, parts.find(GONE))


def test_a_missing_part_is_a_key_like_any_other(parts):
    part = parts.find(GONE)

    assert {part: 1}[part] == 1


def test_an_attribute_is_read_where_examples_have_it(parts):
    assert parts.reader("shape", of=torch.empty(0))(torch.empty(3)) == (3,)


def test_an_attribute_that_examples_lack_is_read_by_what_is_given(parts):
    assert parts.reader("_no_such_part", of=torch.empty(0), instead=len)(torch.empty(3)) == 3


def test_the_place_of_an_attribute_names_the_class(parts):
    parts.reader("_no_such_part", of=torch.nn.Linear)

    assert "`torch.nn.modules.linear.Linear._no_such_part`" in parts.probe()


def test_a_part_that_something_stands_for_is_not_required(parts):
    parts.find(GONE, instead=None)

    parts.require()


def test_parts_are_required_all_at_once(parts):
    parts.find("torch:add")
    parts.find(GONE)

    with pytest.raises(MissingPart):
        parts.require()


@pytest.mark.parametrize("place", ["torch._no_such_module:part", GONE, "torch:Tensor.add._no_such_part"])
def test_what_is_nowhere_is_not_found(place):
    with pytest.raises((ImportError, AttributeError)):
        look_up(place)
