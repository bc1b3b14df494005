"""Which choices of a step are tried, in which order, and which is chosen: for certain gains only, the simplest one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.aot.engine import AOT
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.recurrence.engine import RECURRENCE
from porting.engines.tuning.candidates import PLAIN, beats, choose, is_settled, list_candidates
from porting.support.interleaved import Timing

WHOLE = Choice("aot")


def step(settings, num_layers, *, model=None, **plan):
    """Return the graph of a stack of layers, each with a weight and a bias, and a request to train it."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(num_layers))) if model is None else model
    graph = capture_step(model, [torch.ones(4, 3), torch.ones(4, 3)], loss=F.mse_loss, mode="training")
    names = tuple(info.name for info in graph.parameters)
    return graph, BuildRequest(CallPlan(**plan), (settings,), (names,))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_get_loops_of_their_own_before_programs(settings, kind):
    class First(kind):
        def forward(self, x):
            return super().forward(x)[0]

    found = list_candidates(
        *step(settings("ADAM"), 1, model=First(3, 3)), engines={"aot": AOT, "recurrence": RECURRENCE}
    )

    wanted = [Choice("recurrence"), Choice("recurrence", fused_update=True)]
    assert [choice for choice in found if choice.engine != "replay"][:2] == wanted
    assert WHOLE in found


def test_other_steps_have_no_loops(settings):
    found = list_candidates(*step(settings("ADAM"), 1), engines={"recurrence": RECURRENCE})

    assert {choice.engine for choice in found} == {"replay"}


def test_plain_replay_comes_first(settings):
    assert list_candidates(*step(settings("ADAM"), 1), engines={"aot": AOT})[0] == PLAIN


def test_an_engine_without_choices_has_one_choice(settings):
    found = list_candidates(*step(settings("ADAM"), 1), engines={"theirs": object()})

    assert [choice for choice in found if choice.engine != "replay"] == [Choice("theirs")]


def listing(*choices):
    return SimpleNamespace(list_choices=lambda _graph, _request: list(choices))


def test_an_engine_offers_choices_of_its_own_and_each_once(settings):
    engine = listing(PLAIN, Choice("another", steps_per_run=2), PLAIN)

    found = list_candidates(*step(settings("ADAM"), 1), engines={"theirs": engine})

    assert [choice for choice in found if choice.engine != "replay"] == [
        Choice("theirs"),
        Choice("theirs", steps_per_run=2),
    ]


def test_an_engine_that_fails_to_list_its_choices_is_tried_all_the_same(settings):
    engine = SimpleNamespace(list_choices=None)

    found = list_candidates(*step(settings("ADAM"), 1), engines={"theirs": engine})

    assert found[-1] == Choice("theirs")


@pytest.mark.parametrize(("rows", "is_tried"), [(4, True), (200_000, False)])
def test_a_single_thread_is_tried_for_tiny_steps(settings, monkeypatch, rows, is_tried):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    graph = capture_step(nn.Linear(3, 3), [torch.ones(rows, 3)], mode="inference")

    found = list_candidates(graph, BuildRequest(CallPlan()), engines={})

    assert (replace(PLAIN, num_threads=1) in found) is is_tried


# -- the choice


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
    simple, bold = Choice("aot"), Choice("aot", channels_last=True)

    chosen = choose({PLAIN: timing(2.0, 2.0), simple: timing(1.0, 1.0), bold: timing(0.99, 0.99)})

    assert chosen == simple


@pytest.mark.parametrize(("seconds", "is_chosen"), [(0.995, True), (1.02, False)])
def test_a_tie_is_enough_for_the_fused_update_of_replay(seconds, is_chosen):
    fused = replace(PLAIN, fused_update=True)

    chosen = choose({PLAIN: Timing((1.0,) * 9, (1.0,) * 9), fused: Timing((seconds,) * 9, (seconds,) * 9)})

    assert (chosen == fused) is is_chosen


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((2.0,) * 3, (1.0,) * 3, True),
        ((1.1,) * 3, (1.0,) * 3, False),
        ((1.1,) * 5, (1.0,) * 5, True),
        ((1.1, 1.1, 1.0, 1.1, 1.1), (1.0,) * 5, False),
        ((1.0,) * 5, (1.0,) * 5, False),
        ((1.0,) * 5, (1.1,) * 5, True),
    ],
    ids=["by far", "too few rounds", "in each of enough rounds", "not in each", "a tie", "replay wins"],
)
def test_a_choice_is_settled_when_one_has_won_all_rounds(first, second, expected):
    assert is_settled({PLAIN: Timing(first, first), Choice("aot"): Timing(second, second)}) is expected


def test_processor_time_alone_settles_nothing():
    longer = Timing((3.0,) * 5, (1.0,) * 5)

    assert not is_settled({PLAIN: Timing((2.0,) * 5, (2.0,) * 5), Choice("aot"): longer})
