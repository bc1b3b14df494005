"""Predictions know what cannot become faster, and how far one measurement tells of another candidate."""

from __future__ import annotations

import math

import pytest

from porting.engines.calls.executable import Variant
from porting.engines.tuning.predictions import StepCost, doubt, explain_loss, find_score, predict, relative_cost
from porting.support.interleaved import Interval, Timing

PLAIN, LAST = Variant(), Variant(channels_last=True)
AOT, AOT_LAST = Variant("aot"), Variant("aot", channels_last=True)


def cost(products=0.0, library=0.0, update=0.0, rest=0.0, **facts):
    return StepCost(products, library, update, rest, **facts)


def test_a_step_of_library_kernels_alone_gains_nothing():
    assert cost(library=1.0).most_gain == 1.0


def test_convolutions_may_gain_by_other_kernels():
    found = cost(convolutions=1.0)

    assert 1.0 < found.usual_gain < found.most_gain < 9 / 4


def test_what_is_fused_gains_most():
    assert cost(rest=1.0).most_gain > cost(update=1.0).most_gain > cost(library=1.0).most_gain


def test_a_product_at_the_peak_of_the_machine_gains_nothing():
    assert cost(products=1.0, product_flops=100, peak_flops=100.0).most_gain == 1.0


def test_a_slow_product_may_gain_by_another_library():
    slow = cost(products=1.0, product_flops=50, peak_flops=100.0)

    assert slow.most_gain == pytest.approx(2.0)
    assert 1.0 < slow.usual_gain < slow.most_gain


def test_without_cells_the_least_is_never_more_than_the_usual_and_that_never_more_than_all():
    for kinds in ((1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 0.0, 0.1), (5.0, 0.0, 0.1, 0.0)):
        found = StepCost(*kinds, product_flops=10, peak_flops=1000.0)

        assert found.least_seconds <= found.usual_seconds <= found.seconds


def test_a_step_that_takes_nothing_could_gain_anything():
    assert cost().most_gain == math.inf


def test_the_score_lies_between_processor_and_clock():
    assert find_score(Timing(wall_seconds=(8.0,), cpu_seconds=(2.0,))) == 4.0


def test_the_memory_format_that_replay_likes_is_expected_to_be_the_better_one():
    replays = {PLAIN: 1.0, LAST: 0.5}

    assert relative_cost(AOT_LAST, replays, None) == 0.5 * relative_cost(AOT, replays, None)


def test_the_number_of_threads_that_replay_likes_is_expected_to_be_the_better_one():
    replays = {PLAIN: 1.0, Variant(num_threads=1): 0.8}

    assert relative_cost(Variant("aot", num_threads=1), replays, None) == pytest.approx(0.8)


def test_several_steps_of_a_run_matter_for_tiny_steps_only():
    tiny, large = cost(rest=0.01, num_iterations=100), cost(rest=10.0, num_iterations=100)
    several = Variant("aot", steps_per_run=10)

    gains = [relative_cost(AOT, {PLAIN: 1.0}, one) / relative_cost(several, {PLAIN: 1.0}, one) for one in (tiny, large)]

    assert gains[0] > 1.05
    assert gains[1] < 1.001


def test_another_kind_of_update_is_worth_at_most_what_the_update_takes():
    fused = Variant("aot", fused_update=True)

    assert doubt(AOT, fused, cost(library=1.0, update=0.01)) < 1.02
    assert doubt(AOT, fused, cost(library=1.0, update=1.0)) > 1.2


def test_without_a_compiled_candidate_the_cost_gives_the_bounds():
    found = predict(AOT, {}, {PLAIN: 1.0}, cost(library=0.9, rest=0.1))

    assert found is not None
    assert found.low == pytest.approx(0.915)
    assert found.low < found.median < 1.0


def test_nothing_is_predicted_of_an_engine_of_which_nothing_is_known():
    assert predict(Variant("other"), {AOT: 0.5}, {PLAIN: 1.0}, None) is None


def test_a_compiled_candidate_predicts_the_next_one():
    found = predict(AOT, {AOT_LAST: 0.4}, {PLAIN: 1.0, LAST: 0.5}, None)

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


def test_an_lstm_that_is_written_out_takes_longer_than_torchs_kernel():
    found = predict(AOT, {}, {PLAIN: 1.0}, cost(cells=1.0))

    assert found is not None
    assert 1.0 < found.low < found.median < found.high
    assert explain_loss(found, 1.0, is_first=True) == (
        "at most 0.83 times as fast as the best: most of the step is in kernels that it cannot make faster"
    )
