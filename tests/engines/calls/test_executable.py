"""A variant has a name for people, and travels as text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from porting.engines.calls.executable import Variant


@pytest.mark.parametrize(
    ("variant", "label"),
    [
        (Variant(), "replay"),
        (Variant("aot", fused_update=True), "aot, fused update"),
        (Variant("aot", steps_per_run=4, num_threads=1), "aot, 4 steps a run, 1 thread(s)"),
        (Variant(micro_batches_at_once=8), "replay, 8 micro-batches at once"),
    ],
)
def test_a_label_says_what_differs_from_plain_replay(variant, label):
    assert variant.label == label


def test_a_variant_travels_as_text():
    variant = Variant("aot", channels_last=True, micro_batches_at_once=2)

    assert Variant(**json.loads(json.dumps(dataclasses.asdict(variant)))) == variant
