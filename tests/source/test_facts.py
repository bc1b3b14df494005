"""Facts: the words for what happens in a program."""

from __future__ import annotations

import ast
from dataclasses import replace

from porting.diagnostics import Place
from porting.source.facts import Call, Facts, Kind, ProgramObject, Where

MODEL, PORT = ProgramObject(Kind.MODULE, "train.Net"), ProgramObject(Kind.PORT, "poptorch.trainingModel")


def make_call(name: str, *receiver: ProgramObject) -> Call:
    return Call(ast.Call(), Place("train.py", 1), name, Where("train.py"), receiver=receiver)


def test_a_method_is_told_by_its_dot():
    assert make_call(".backward").is_method("step", "backward")
    assert not make_call("backward").is_method("backward")


def test_a_call_is_on_what_its_receiver_may_be():
    call = make_call(".to", MODEL, PORT)

    assert call.is_on(Kind.PORT)
    assert not call.is_on(Kind.LOSS, Kind.BATCH)


def test_objects_are_listed_by_kind():
    facts = Facts(objects=[MODEL, PORT])

    assert facts.list_program_objects(Kind.PORT, Kind.LOSS) == [PORT]


def test_a_program_with_a_port_is_ported():
    assert Facts(objects=[MODEL, PORT]).is_ported
    assert not Facts(objects=[MODEL]).is_ported


def test_calls_of_methods_come_in_the_order_of_the_program():
    names = (".zero_grad", ".backward", ".step", "step", ".zero_grad")
    calls = [replace(make_call(name), order=number) for number, name in enumerate(names)]
    facts = Facts(calls=calls)

    assert facts.list_methods("step", "zero_grad") == [calls[0], calls[2], calls[4]]
    assert facts.list_methods("eval") == []
