"""A choice has a name for people, and travels as text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from porting.engines.calls.executable import Choice


@pytest.mark.parametrize(
    ("choice", "label"),
    [
        (Choice(), "replay"),
        (Choice("aot", fused_update=True), "aot, fused update"),
        (Choice("aot", steps_per_run=4, num_threads=1), "aot, 4 steps a run, 1 thread(s)"),
        (Choice(micro_batches_at_once=8), "replay, 8 micro-batches at once"),
    ],
)
def test_a_label_says_what_differs_from_plain_replay(choice, label):
    assert choice.label == label


def test_a_choice_travels_as_text():
    choice = Choice("aot", channels_last=True, micro_batches_at_once=2)

    assert Choice(**json.loads(json.dumps(dataclasses.asdict(choice)))) == choice
