"""Predictions know what cannot become faster, and how far one measurement tells of another candidate."""

from __future__ import annotations

import pytest

from porting.engines.calls.executable import Choice
from porting.engines.contract.step_cost import StepCost
from porting.engines.tuning.predictions import Forecast, doubt, explain_loss, find_score, predict, relative_cost
from porting.support.interleaved import Interval, Timing

PLAIN, LAST = Choice(), Choice(channels_last=True)
AOT, AOT_LAST = Choice("aot"), Choice("aot", channels_last=True)


def forecast(usual, *, least=0.0, most=2.0, update=0.0):
    return Forecast(Interval(usual, least, most), update)


def test_a_forecast_is_a_share_of_the_replayed_call():
    cost = StepCost(0.0, 3.0, 1.0, 0.0)

    assert Forecast.of(Interval(2.0, 1.0, 6.0), cost) == Forecast(Interval(0.5, 0.25, 1.5), 0.5)


@pytest.mark.parametrize(
    ("seconds", "cost"), [(None, StepCost(0.0, 1.0, 0.0, 0.0)), (Interval(1.0, 1.0, 1.0), StepCost(0.0, 0.0, 0.0, 0.0))]
)
def test_there_is_no_forecast_without_a_prediction_or_of_a_step_that_takes_nothing(seconds, cost):
    assert Forecast.of(seconds, cost) is None


def test_the_score_lies_between_processor_and_clock():
    assert find_score(Timing(wall_seconds=(8.0,), cpu_seconds=(2.0,))) == 4.0


def test_the_memory_format_that_replay_likes_is_expected_to_be_the_better_one():
    replays = {PLAIN: 1.0, LAST: 0.5}

    assert relative_cost(AOT_LAST, replays, None) == 0.5 * relative_cost(AOT, replays, None)


def test_the_number_of_threads_that_replay_likes_is_expected_to_be_the_better_one():
    replays = {PLAIN: 1.0, Choice(num_threads=1): 0.8}

    assert relative_cost(Choice("aot", num_threads=1), replays, None) == pytest.approx(0.8)


def test_what_its_engine_expects_of_a_choice_counts():
    assert relative_cost(AOT, {PLAIN: 1.0}, forecast(0.7)) == pytest.approx(0.7)


def test_another_kind_of_update_is_worth_at_most_what_the_update_takes():
    fused = Choice("aot", fused_update=True)

    assert doubt(AOT, fused, forecast(1.0, update=0.01)) < 1.02
    assert doubt(AOT, fused, forecast(1.0, update=0.5)) > 1.2


def test_without_a_compiled_candidate_the_engine_gives_the_bounds():
    found = predict(AOT, {}, {PLAIN: 1.0, LAST: 0.5}, {AOT: forecast(0.9, least=0.6, most=1.2)})

    assert found == Interval(0.45, 0.3, 0.6)


def test_a_forecast_counts_only_where_there_is_one_of_both():
    found = predict(AOT, {AOT_LAST: 0.4}, {PLAIN: 1.0, LAST: 1.0}, {AOT: forecast(0.1)})

    assert found is not None
    assert found.median == pytest.approx(0.4)


def test_nothing_is_predicted_of_an_engine_of_which_nothing_is_known():
    assert predict(Choice("other"), {AOT: 0.5}, {PLAIN: 1.0}, {}) is None


def test_a_compiled_candidate_predicts_the_next_one():
    found = predict(AOT, {AOT_LAST: 0.4}, {PLAIN: 1.0, LAST: 0.5}, {})

    assert found is not None
    assert found.median == pytest.approx(0.8)
    assert found.low < 0.8 < found.high


@pytest.mark.parametrize(("low", "is_out"), [(0.90, False), (0.99, True), (1.2, True)])
def test_a_candidate_is_left_out_if_it_cannot_gain_as_much_as_counts(low, is_out):
    reason = explain_loss(Interval(1.3, low, 1.5), 1.0, is_first=False)

    assert bool(reason) is is_out


def test_what_is_not_known_is_tried():
    assert explain_loss(None, 1.0, is_first=True) == ""


def test_the_reason_for_compiling_nothing_names_the_kernels():
    assert "kernels that it cannot make faster" in explain_loss(Interval(1.0, 1.0, 1.0), 1.0, is_first=True)
