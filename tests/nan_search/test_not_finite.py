"""What a search has found is an error with a place, and plain values."""

from __future__ import annotations

import json

import torch

from porting.diagnostics import Place
from porting.nan_search import NotFinite, NotFiniteError, measure_range
from porting.observe.watcher import WatchedOperator

LOG = WatchedOperator("torch.log", "blocks.3", Place("train.py", 7))
FAULT = NotFinite(
    phase="forward",
    message="`torch.log` makes NaN",
    operator=LOG,
    inputs=(measure_range("x", torch.tensor([-1.0])),),
    result=measure_range("torch.log", torch.tensor([float("nan")])),
    help=("clamp the input",),
)


def test_the_line_is_the_operator_s_unless_another_is_given() -> None:
    assert FAULT.place == LOG.place
    assert FAULT.replace(place=Place("other.py", 1)).place == Place("other.py", 1)


def test_an_error_names_the_module_the_inputs_and_the_result() -> None:
    finding = FAULT.to_finding()

    assert (finding.code, finding.place) == ("L009", LOG.place)
    assert finding.notes[0] == "the module is `blocks.3`"
    assert finding.notes[1].startswith("input x: float32[1]")
    assert finding.notes[2].startswith("result torch.log: float32[1], 1 of 1 NaN")


def test_a_later_step_is_said_and_the_first_is_not() -> None:
    later = FAULT.replace(step=2, micro_batch=3).to_finding()

    assert "that is step 2 of the call, micro-batch 3 of the step" in later.notes
    assert not any("of the call" in note for note in FAULT.to_finding().notes)


def test_what_the_search_ran_on_is_the_last_note() -> None:
    assert FAULT.replace(ran_on="found in plain PyTorch").to_finding().notes[-1] == "found in plain PyTorch"


def test_what_was_so_before_the_call_has_no_module() -> None:
    before = NotFinite("before", "the batch holds NaN")

    assert (before.module_path, before.place) == ("", None)


def test_plain_values_are_fit_for_json() -> None:
    plain = json.loads(json.dumps(FAULT.to_dict()))

    assert (plain["operator"], plain["module_path"], plain["place"]["line"]) == ("torch.log", "blocks.3", 7)
    assert plain["result"]["num_nan"] == 1


def test_an_error_carries_what_is_known_of_it() -> None:
    assert NotFiniteError(FAULT.to_finding(), FAULT).fault is FAULT
    assert "torch.log" in str(FAULT)
