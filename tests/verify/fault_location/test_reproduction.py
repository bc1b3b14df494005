"""Modules and operators are shown alone; a reproduction that shows no difference, or does not run, is not shown."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.verify.certificate import Location
from porting.verify.fault_location.reproduction import reproduce_fault, reproduce_module, without_idle_reproduction
from porting.verify.fault_location.step_trace import MicroBatchTrace, Origin
from porting.verify.fault_location.trace_comparison import Apart, ValueFault
from porting.verify.fault_location.traced_steps import LOSS, StepTrace
from tests.verify.fault_location.steps import make_evidence, make_training

SHOWS = 'import torch\ntorch.manual_seed(3)\nprint("largest difference:", float(torch.ones(1)))\n'


@pytest.mark.parametrize("program", [SHOWS, SHOWS.replace("ones(1)", "tensor(float('nan'))"), 'print("the schedule")'])
def test_one_that_shows_something_stays(program, capsys):
    before = torch.get_rng_state()

    assert without_idle_reproduction(Location("forward", 1, reproduction=program)).reproduction == program
    assert capsys.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("program", ["", SHOWS.replace("ones", "zeros"), "import torch\ntorch.nothing()", "a b"])
def test_one_that_shows_nothing_or_fails_goes(program):
    location = Location("forward", 1, cause="the weights", reproduction=program)

    assert without_idle_reproduction(location) == Location("forward", 1, cause="the weights")


# -- programs ----------------------------------------------------------------------------------------------------------


def run(program, capsys):
    exec(compile(program, "<reproduction>", "exec"), {"__name__": "__main__"})
    return float(capsys.readouterr().out.split()[-1])


def reproduce(plain, ported, *inputs, path="part", attribute=""):
    models = [nn.ModuleDict({"part": module}) for module in (plain, ported)]
    trace = MicroBatchTrace()
    trace.enter_module(path, inputs)
    evidence = make_evidence(make_training(models[0], optimizer="none"), model=models[1])
    evidence = replace(evidence, step=StepTrace(micro_batches=[trace]))
    return reproduce_module(path, evidence, attribute=attribute)


@pytest.mark.parametrize(
    ("plain", "ported", "inputs"),
    [
        (nn.BatchNorm1d(3), nn.BatchNorm1d(3, eps=0.1), (torch.ones(4, 3),)),
        (nn.Dropout(0.2), nn.Dropout(0.5), (torch.ones(40),)),
        (nn.ReLU(), nn.GELU(), (torch.ones(4),)),
        (nn.Linear(3, 2), nn.Linear(3, 2).eval(), (torch.ones(4, 3),)),
        (nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3, padding=1), (torch.ones(1, 1, 5, 5),)),
        (nn.LSTM(3, 4, dropout=0.0), nn.LSTM(3, 4, bidirectional=True), (torch.ones(5, 2, 3),)),
        (nn.Embedding(5, 3), nn.Embedding(5, 3, max_norm=0.1), (torch.ones(4, dtype=torch.int64),)),
        (nn.LayerNorm(3), nn.LayerNorm(3, eps=0.1), (torch.ones(4, 3),)),
    ],
)
def test_two_modules_are_shown_with_their_settings(plain, ported, inputs, capsys):
    program = reproduce(plain, ported, *inputs)

    is_same = type(plain) is nn.Linear
    assert (run(program, capsys) == 0.0) is is_same
    assert f"nn.{type(plain).__name__}(" in program


def test_a_buffer_behind_the_modules_is_shown(capsys):
    program = reproduce(nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=0.5), torch.ones(4, 3), attribute="running_mean")

    assert run(program, capsys) > 0


class Own(nn.Module):
    """A module of the user's, which no expression makes."""


@pytest.mark.parametrize(
    ("plain", "ported", "inputs"),
    [
        (nn.ReLU(), nn.ReLU(), (torch.ones(2),)),
        (nn.ReLU(), Own(), (torch.ones(2),)),
        (nn.ReLU(), nn.GELU(), ()),
        (nn.ReLU(), nn.GELU(), ("a word",)),
    ],
)
def test_of_modules_that_show_nothing_there_is_no_program(plain, ported, inputs):
    assert reproduce(plain, ported, *inputs) == ""


@pytest.mark.parametrize(
    ("plain", "ported"),
    [
        (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum")),
        (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))),
        (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)),
    ],
)
def test_two_losses_are_shown_with_labels_of_as_many_classes(plain, ported, capsys):
    trace = MicroBatchTrace()
    trace.enter_module(LOSS, (torch.ones(8, 3), torch.ones(8, dtype=torch.int64)))
    evidence = make_evidence(make_training(loss=plain), step=StepTrace(micro_batches=[trace]))
    evidence.ported.port = SimpleNamespace(loss=ported)

    assert run(reproduce_module(LOSS, evidence), capsys) > 0


@pytest.mark.parametrize(
    ("plain", "ported"),
    [
        ((torch.add, torch.ones(3), 1.0), (torch.add, torch.ones(3), 2.0)),
        ((torch.cat, [torch.ones(3), torch.ones(2)]), (torch.cat, [torch.ones(2), torch.ones(3)])),
        (None, (torch.mul, torch.ones(3), 2.0)),
        ((torch.sum, torch.ones(3, 2), 0), (torch.sum, torch.ones(3, 2), 1)),
    ],
)
def test_two_operators_are_shown(plain, ported, capsys):
    records = []
    for call in (plain, ported):
        trace = MicroBatchTrace()
        if call is not None:
            trace.run(Origin(), call[0], call[1:], {})
        records.append(trace.values[0] if trace.values else None)

    program = reproduce_fault(ValueFault(*records, Apart()), "nothing", make_evidence())

    assert run(program, capsys) > 0
