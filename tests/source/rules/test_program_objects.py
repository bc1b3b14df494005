"""What a program object is made of: its modules, what it shares with others, and where a loss comes from."""

from __future__ import annotations

import ast

import pytest

from porting.diagnostics import Place
from porting.source.facts import Call, Kind, ProgramObject, Where
from porting.source.rules.program_objects import (
    collect_loss_parts,
    collect_modules,
    go_through_parts,
    is_of_no_module,
    share_module,
    tell_guess,
)

HEAD = ProgramObject(Kind.MODULE, "train.Head")
NET = ProgramObject(Kind.MODULE, "train.Net", parts=(HEAD,))
OTHER = ProgramObject(Kind.MODULE, "train.Other")


def test_modules_are_collected_to_the_innermost_one():
    assert collect_modules([ProgramObject(Kind.OPTIMIZER, parts=(NET,))]) == {NET, HEAD}


def test_a_deep_copy_is_not_what_it_was_copied_of():
    call = Call(ast.Call(), Place("train.py", 1), "copy.deepcopy", Where("train.py"))
    copied = ProgramObject(Kind.MODULE, "train.Net", parts=(NET,), call=call)

    assert collect_modules([copied]) == {copied}


@pytest.mark.parametrize(("other", "expected"), [(NET, True), (HEAD, True), (OTHER, False)])
def test_two_share_a_module_if_one_is_of_a_part_of_the_other(other, expected):
    assert share_module([ProgramObject(Kind.OPTIMIZER, parts=(NET,))], [other]) is expected


@pytest.mark.parametrize(("kind", "expected"), [(Kind.TENSOR, True), (Kind.MODULE, False)])
def test_an_optimizer_of_tensors_alone_is_of_no_module(kind, expected):
    assert is_of_no_module(ProgramObject(Kind.OPTIMIZER, parts=(ProgramObject(kind),))) is expected


def test_parts_of_an_output_that_are_in_no_loss_are_not_collected():
    output, unused = (ProgramObject(Kind.OUTPUT, parts=(NET,)) for _number in range(2))
    label = ProgramObject(Kind.TENSOR)
    loss = ProgramObject(Kind.LOSS, parts=(output, label))

    parts = collect_loss_parts([loss])

    assert parts == {output, loss}
    assert unused not in parts


def test_what_is_made_of_itself_is_gone_through_once():
    one = ProgramObject(Kind.LOSS)
    one.parts = (one,)

    assert list(go_through_parts((one,))) == [one]


def test_a_guess_is_told_only_of_what_is_guessed_everywhere():
    guessed = ProgramObject(Kind.MODULE, "model", is_guess=True)

    assert tell_guess([guessed]) == "only its name says that `model` is a module"
    assert not tell_guess([guessed, NET])
