"""Operators are timed inside of their passes, and the passes fill the call."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.api.rehearsals import rehearse
from porting.engines.replay.timed_replay import time_operators


def make_rehearsal(**options: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    ported = to_ipu(model, nn.CrossEntropyLoss(), options=PortOptions(**options), device="sim")
    batch = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)
    ported.compile(*batch)
    return rehearse(ported.port, ported.device_executor, batch, {})


def test_every_operator_has_a_span_in_its_pass() -> None:
    rehearsal = make_rehearsal()

    spans = time_operators(rehearsal)

    forward = [span.name for span in spans if span.phase == "forward" and not span.is_phase]
    assert forward == [operator.operator for operator in rehearsal.graph.operators]
    for whole in (span for span in spans if span.is_phase):
        inside = [span for span in spans if span.phase == whole.phase and not span.is_phase]
        assert sum(span.seconds for span in inside) <= whole.seconds


def test_passes_follow_each_other() -> None:
    passes = [span for span in time_operators(make_rehearsal(accumulation=2, device_iterations=2)) if span.is_phase]

    assert [span.name for span in passes] == [*["forward", "backward"] * 2, "update"] * 2
    ends = [span.start_seconds + span.seconds for span in passes]
    assert all(end <= span.start_seconds + 1e-9 for end, span in zip(ends, passes[1:]))


def test_a_rehearsal_can_be_copied_and_run_again() -> None:
    rehearsal = make_rehearsal()
    before = {name: value.clone() for name, value in rehearsal.state.parameters.items()}

    time_operators(rehearsal.copy())

    assert all(torch.equal(before[name], value) for name, value in rehearsal.state.parameters.items())


def test_nothing_keeps_the_weights_of_the_run() -> None:
    rehearsal = make_rehearsal()
    weights = [weakref.ref(weight) for weight in rehearsal.state.parameters.values()]

    time_operators(rehearsal.copy())
    time_operators(rehearsal)
    del rehearsal
    gc.collect()

    assert [weight() for weight in weights] == [None] * len(weights)
