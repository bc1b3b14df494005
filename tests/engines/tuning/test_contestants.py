"""Which candidates are compiled: replayed on measurements of whole tunings, in which all had been compiled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from porting.capture import capture_step
from porting.engines.aot.engine import AOT as AOT_ENGINE
from porting.engines.calls.executable import Choice
from porting.engines.contract.step_cost import StepCost
from porting.engines.recurrence.engine import RECURRENCE
from porting.engines.tuning.candidates import choose
from porting.engines.tuning.contestants import Contestant, choose_wave, describe_candidate
from porting.engines.tuning.predictions import Forecast
from porting.support.interleaved import Timing

PLAIN, FUSED, LAST = Choice(), Choice(fused_update=True), Choice(channels_last=True)
AOT, AOT_LAST = Choice("aot"), Choice("aot", channels_last=True)
AOT_FUSED, AOT_LAST_FUSED = Choice("aot", fused_update=True), Choice("aot", channels_last=True, fused_update=True)
LOOPS, LOOPS_FUSED = Choice("recurrence"), Choice("recurrence", fused_update=True)
TEN, TWENTY_FIVE = Choice("aot", steps_per_run=10), Choice("aot", steps_per_run=25)
ENGINES = {"aot": AOT_ENGINE, "recurrence": RECURRENCE}


class Measured(NamedTuple):
    """Milliseconds of each candidate's call, in the order of the list, and the cost of the step by kinds."""

    milliseconds: dict
    cost: Optional[StepCost]
    most_compiled: int


# Reports of an EPYC of 2 cores, one thread, torch 2.13, in processor time.
REPORTS = {
    "MLP 4x512, Adam": Measured(
        {PLAIN: 8.89, FUSED: 7.07, AOT: 3.824},
        StepCost(4.44e-3, 0.0, 5.56e-3, 0.86e-3, product_flops=402_653_184, peak_flops=216e9),
        1,
    ),
    "CNN of 3 blocks with BatchNorm": Measured(
        {PLAIN: 11.924, FUSED: 12.324, LAST: 7.323, AOT_LAST: 6.659, AOT: 7.278},
        StepCost(0.0, 3.31e-3, 0.39e-3, 5.12e-3),
        1,
    ),
    "transformer encoder": Measured(
        {PLAIN: 30.213, FUSED: 28.736, AOT: 15.871},
        StepCost(18.27e-3, 4.7e-3, 1.95e-3, 7.32e-3, product_flops=1_610_000_000, peak_flops=216e9),
        1,
    ),
    "mushrooms": Measured(
        {PLAIN: 18.373, FUSED: 19.506, AOT: 5.363, TWENTY_FIVE: 4.607},
        StepCost(0.0, 0.0, 2.9e-3, 21.66e-3, num_iterations=100),
        1,
    ),
    "ResNet-18 at 64x64": Measured(
        {PLAIN: 147.2, FUSED: 145.5, LAST: 145.0, AOT_LAST_FUSED: 158.0, AOT_FUSED: 130.3, AOT_LAST: 140.4, AOT: 131.2},
        StepCost(1.0e-3, 109.8e-3, 19.5e-3, 25.4e-3),
        4,
    ),
    "LSTM of length 32": Measured(
        {PLAIN: 10.8, FUSED: 10.5, LOOPS: 8.63, LOOPS_FUSED: 8.34, AOT: 10.5},
        StepCost(0.0, 11.32e-3, 0.97e-3, 1.11e-3, product_flops=245_760),
        1,
    ),
    "CNN of the examples": Measured(
        {PLAIN: 1.477, FUSED: 1.474, LAST: 1.248, AOT_LAST: 0.861, AOT: 0.920},
        None,
        2,
    ),
}


@pytest.fixture(scope="module")
def graph():
    """Capture a step; none of these tests looks at it."""
    import torch

    return capture_step(torch.nn.Linear(2, 1), [torch.ones(1, 2)], mode="inference")


def enter(graph, measured):
    return [
        Contestant(
            choice,
            graph,
            folder=None if choice.engine == "replay" else Path("programs"),
            engine=ENGINES.get(choice.engine),
            forecast=expect(choice, measured.cost),
        )
        for choice in measured.milliseconds
    ]


def expect(choice, cost):
    return Forecast.of(AOT_ENGINE.predict(choice, cost), cost) if cost is not None and choice.engine == "aot" else None


def measure(contestant, measured):
    """Pretend that a contestant was compiled and measured beside plain replay."""
    contestant.timing, contestant.reference = (
        Timing((seconds,) * 9, (seconds,) * 9)
        for seconds in (measured.milliseconds[contestant.choice], measured.milliseconds[PLAIN])
    )
    contestant.executable = object()


def tune(graph, measured):
    contestants = enter(graph, measured)
    for contestant in contestants:
        if contestant.folder is None:
            measure(contestant, measured)
    while True:
        wave = choose_wave(contestants)
        if not wave:
            return contestants
        for contestant in wave:
            contestant.compile_seconds = 10.0
            measure(contestant, measured)


@pytest.mark.parametrize("name", list(REPORTS))
def test_the_choice_is_within_three_percent_of_that_among_all(graph, name):
    measured = REPORTS[name]

    contestants = tune(graph, measured)

    chosen = choose({one.choice: one.timing for one in contestants if one.timing is not None})
    assert measured.milliseconds[chosen] <= 1.03 * min(measured.milliseconds.values())
    assert sum(one.compile_seconds is not None for one in contestants) <= measured.most_compiled


@pytest.mark.parametrize("name", list(REPORTS))
def test_what_was_compiled_took_no_less_than_what_had_been_predicted(graph, name):
    found = [describe_candidate(contestant) for contestant in tune(graph, REPORTS[name])]

    for candidate in found:
        if candidate.expected is not None and candidate.speed_up is not None:
            assert candidate.speed_up.median <= 1.03 * candidate.expected.high


def test_what_is_not_compiled_has_a_reason(graph):
    contestants = tune(graph, REPORTS["CNN of 3 blocks with BatchNorm"])

    assert [one.choice for one in contestants if one.left_out] == [AOT]
    assert "times as long as the best" in contestants[-1].left_out


def test_a_step_of_library_kernels_alone_is_not_compiled(graph):
    measured = Measured({PLAIN: 100.0, AOT: 99.0, AOT_LAST: 99.0}, StepCost(0.0, 99e-3, 0.0, 1e-3), 0)

    contestants = enter(graph, measured)
    measure(contestants[0], measured)

    assert choose_wave(contestants) == []
    assert all("kernels that it cannot make faster" in one.left_out for one in contestants[1:])


def test_loops_over_time_are_compiled_before_programs_and_with_the_update_that_is_faster(graph):
    measured = REPORTS["LSTM of length 32"]._replace(cost=None)
    contestants = enter(graph, measured)
    for contestant in contestants[:2]:
        measure(contestant, measured)

    (first,) = choose_wave(contestants)
    first.compile_seconds = 4.0
    measure(first, measured)

    assert first.choice == LOOPS_FUSED
    assert contestants[2].left_out == "its update takes replay 1.03 times as long as the other one"
    assert [one.choice for one in choose_wave(contestants)] == [AOT]


def test_after_a_failure_the_next_candidate_is_compiled(graph):
    measured = Measured({PLAIN: 100.0, LAST: 50.0, AOT: 20.0, AOT_LAST: 10.0}, None, 2)
    contestants = enter(graph, measured)
    for contestant in contestants[:2]:
        measure(contestant, measured)

    (first,) = choose_wave(contestants)
    first.problem, first.compile_seconds = "the compiler crashed", 10.0

    assert first.choice == AOT_LAST
    assert [one.choice for one in choose_wave(contestants)] == [AOT]


def test_engines_of_others_are_tried_beside_each_other(graph):
    measured = Measured({PLAIN: 1.0, Choice("one"): 1.0, Choice("two"): 1.0}, None, 2)
    contestants = enter(graph, measured)
    measure(contestants[0], measured)

    assert [one.choice.engine for one in choose_wave(contestants)] == ["one", "two"]


def test_of_equally_promising_ones_the_simpler_is_compiled_first(graph):
    contestants = enter(graph, Measured({PLAIN: 1.0, AOT: 0.5, TEN: 0.5}, None, 2))
    measure(contestants[0], Measured({PLAIN: 1.0}, None, 0))

    (first,) = choose_wave(contestants)

    assert first.choice == AOT


def test_what_replay_cannot_tell_apart_is_compiled_at_once(graph):
    measured = REPORTS["ResNet-18 at 64x64"]
    contestants = enter(graph, measured)
    for contestant in contestants:
        if contestant.folder is None:
            measure(contestant, measured)

    wave = choose_wave(contestants, num_at_once=2)

    assert [one.choice for one in wave] == [AOT_LAST_FUSED, AOT_FUSED]


def test_what_replay_tells_apart_is_not_compiled_at_once(graph):
    measured = REPORTS["CNN of 3 blocks with BatchNorm"]
    contestants = enter(graph, measured)
    for contestant in contestants:
        if contestant.folder is None:
            measure(contestant, measured)

    assert [one.choice for one in choose_wave(contestants, num_at_once=2)] == [AOT_LAST]


def test_a_replay_that_is_out_still_tells_what_its_memory_format_is_worth(graph):
    measured = Measured({PLAIN: 1.0, LAST: 0.7, AOT: 0.9, AOT_LAST: 0.6}, None, 1)
    contestants = enter(graph, measured)
    plain, last, aot, aot_last = contestants
    measure(plain, measured)
    measure(last, measured)
    last.problem = "it computes something else"
    aot_last.compile_seconds = 10.0
    measure(aot_last, measured)

    assert choose_wave(contestants) == []

    assert aot.left_out.startswith("expected to take")
