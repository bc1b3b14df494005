"""The fastest way is chosen for certain gains only, and of equal ways the simplest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porting.engines.calls.executable import Variant
from porting.engines.tuning.candidates import PLAIN
from porting.engines.tuning.choice import beats, choose
from porting.interleaved import Timing


def timing(*cpu, wall=None):
    return Timing(tuple(cpu if wall is None else wall), tuple(cpu))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (timing(1.0, 1.0, 1.0), timing(2.0, 2.0, 2.0), True),
        (timing(1.0, 1.0, 1.0), timing(1.02, 1.02, 1.02), False),
        (timing(1.0, 3.0, 1.0, 2.0), timing(2.0, 1.0, 2.0, 1.0), False),
        (timing(1.0, 1.0, 1.0, wall=(3.0, 3.0, 3.0)), timing(2.0, 2.0, 2.0), False),
        (timing(2.0, 2.0, 2.0, wall=(1.0, 1.0, 1.0)), timing(2.0, 2.0, 2.0), True),
        (timing(2.2, 2.2, 2.2, wall=(1.0, 1.0, 1.0)), timing(2.0, 2.0, 2.0), False),
    ],
    ids=[
        "half the processor time",
        "a gain of 2 %",
        "no more than noise",
        "less processor time but longer",
        "as much processor time but shorter",
        "more processor time though shorter",
    ],
)
def test_one_beats_another_only_for_certain(one, other, expected):
    assert beats(one, other) is expected


def test_of_two_that_are_equally_fast_the_simpler_one_is_chosen():
    simple, bold = Variant("aot"), Variant("aot", channels_last=True)

    chosen = choose({PLAIN: timing(2.0, 2.0), simple: timing(1.0, 1.0), bold: timing(0.99, 0.99)})

    assert chosen == simple


@pytest.mark.parametrize(("seconds", "is_chosen"), [(0.995, True), (1.02, False)])
def test_a_tie_is_enough_for_the_fused_update_of_replay(seconds, is_chosen):
    fused = replace(PLAIN, fused_update=True)

    chosen = choose({PLAIN: Timing((1.0,) * 9, (1.0,) * 9), fused: Timing((seconds,) * 9, (seconds,) * 9)})

    assert (chosen == fused) is is_chosen
