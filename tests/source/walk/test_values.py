"""Values: what several ways lead to is all of it, and bounded."""

from __future__ import annotations

from porting.source.facts import Kind, ProgramObject
from porting.source.walk.values import (
    UNKNOWN,
    Constant,
    External,
    Object,
    Stream,
    join,
    list_constants,
    list_program_objects,
)

NET, LOSS = Object(ProgramObject(Kind.MODULE)), Object(ProgramObject(Kind.LOSS))


def test_a_join_has_each_item_once():
    assert join((NET,), (LOSS, NET), UNKNOWN) == (NET, LOSS)


def test_a_join_of_nothing_is_unknown():
    assert join() == UNKNOWN


def test_a_join_of_very_many_is_bounded():
    assert len(join(*[(Constant.of(number),) for number in range(100)])) < 50


def test_one_and_true_are_two_constants():
    assert len(join((Constant.of(1),), (Constant.of(True),))) == 2
    assert list_constants((Constant.of(1), NET)) == [1]


def test_the_objects_of_a_container_are_those_in_it():
    inner = Object(elements={0: (NET,), "key": (LOSS, External("torch"))})
    outer = Object(elements={0: (inner,)})
    outer.elements["self"] = (outer,)

    assert list_program_objects((outer, Stream((NET,)))) == (NET.program_object, LOSS.program_object)
