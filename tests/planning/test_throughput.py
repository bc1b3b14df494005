"""Forecasts of speed: laws of the estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porting.machines import find_machine
from porting.planning import throughput
from porting.planning.memory_model import Layout, measure_ipus
from porting.planning.throughput import Pace, count_rounds
from tests.planning.step_chains import chain

LAYOUT = Layout(begins=(0,), ipus=(0,), marks=(), recomputes=False, accumulates=True, state_bytes=8)
POD = find_machine("bow-pod16")


def busy_chain(length=4):
    """Make a step of operators with as many operations each."""
    step = chain(length)
    return replace(step, operations=tuple(replace(op, flops=10**9) for op in step.operations))


def speed(layout=LAYOUT, machine=POD, *, step=None, accumulation=8, loader_rate=None, **how):
    step = busy_chain() if step is None else step
    return Pace(step, layout, measure_ipus(step, layout), machine, accumulation, loader_rate).forecast(**how)


def test_twice_the_work_takes_twice_the_time():
    single, double = (speed(step=busy_chain(length)).seconds["compute"] for length in (4, 8))

    assert double == pytest.approx(2 * single, rel=0.05)


def test_a_faster_clock_is_as_much_faster():
    ratio = speed().seconds["compute"] / speed(machine=find_machine("pod16")).seconds["compute"]

    assert ratio == pytest.approx(62.4 / 87.1, rel=0.02)


def test_a_pipeline_fills_and_drains():
    two = replace(LAYOUT, begins=(0, 2), ipus=(0, 1), recomputes=True)

    assert speed(two).efficiency == 8 / 10
    assert speed(two, accumulation=98).efficiency == 98 / 100
    assert speed(two).balance == pytest.approx(1.0)


def test_an_uneven_pipeline_waits_for_its_slowest_ipu():
    uneven = replace(LAYOUT, begins=(0, 3), ipus=(0, 1), recomputes=True)

    assert speed(uneven).balance == pytest.approx(4 / 6)


def test_a_machine_has_as_many_replicas_as_room():
    two = replace(LAYOUT, begins=(0, 2), ipus=(0, 1), recomputes=True)

    assert (speed().replicas, speed(two).replicas) == (16, 8)


def test_a_loader_that_is_slower_binds():
    slow = speed(loader_rate=10.0)

    assert (slow.samples_per_second, slow.limit) == (10.0, "host")


def test_more_replicas_train_more_and_each_of_them_less():
    step = busy_chain()
    rows = Pace(step, LAYOUT, measure_ipus(step, LAYOUT), POD, accumulation=8).list_scaling()

    assert [row.replicas for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert all(more.samples_per_second > less.samples_per_second for less, more in zip(rows[:5], rows[1:6]))
    assert all(more.share <= less.share for less, more in zip(rows, rows[1:]))
    assert rows[0].share == 1.0


def test_state_off_the_chip_costs_a_transfer_a_step():
    assert speed(replace(LAYOUT, state_off_chip=True)).seconds["update"] > speed().seconds["update"]


def test_recomputation_takes_a_forward_pass_more_but_for_what_is_kept():
    plain, recomputed = speed(), speed(replace(LAYOUT, recomputes=True))
    kept = speed(replace(LAYOUT, recomputes=True, marks=(1,)))

    assert recomputed.seconds["recomputation"] == pytest.approx(plain.seconds["compute"] / 3)
    assert kept.seconds["recomputation"] == pytest.approx(plain.seconds["compute"] / 4)
    assert plain.seconds["recomputation"] == 0.0


def test_what_comes_back_of_every_micro_batch_can_bind():
    step = replace(busy_chain(), output_bytes=10**9)

    assert speed(replace(LAYOUT, outputs="all"), step=step).limit == "host"
    some = speed(replace(LAYOUT, outputs="every_n", outputs_every=4), step=step).samples_per_second
    assert some > 3 * speed(replace(LAYOUT, outputs="all"), step=step).samples_per_second


def test_a_product_in_parts_reads_its_operands_again():
    step = replace(busy_chain(), operations=tuple(replace(op, operand_bytes=10**6) for op in busy_chain().operations))
    parts = speed(replace(LAYOUT, serialized={"weight1": 4}), step=step)

    assert parts.seconds["overhead"] > speed(step=step).seconds["overhead"]


def test_a_product_of_few_rows_takes_the_time_of_its_bytes():
    step = busy_chain()
    light = tuple(replace(op, flops=1, operand_bytes=10**9) for op in step.operations)

    assert speed(step=replace(step, operations=light)).seconds["compute"] > speed(step=step).seconds["compute"]


def test_a_change_of_speed_is_as_sure_as_the_parts_that_change():
    before, after = speed(), speed(replace(LAYOUT, recomputes=True))
    gain, error = before.compare(after)

    assert gain == pytest.approx(after.samples_per_second / before.samples_per_second - 1)
    assert 0 < error < 0.15
    assert before.compare(before) == (0.0, 0.0)


def test_hours_have_an_interval():
    found = speed()

    assert found.count_hours(1e9, 0.05) < found.count_hours(1e9) < found.count_hours(1e9, 0.95)
    assert found.count_hours(1e9, 0.8413) == pytest.approx(1.15 * found.count_hours(1e9), rel=1e-3)


def test_hours_are_those_of_the_samples():
    found = speed()

    assert found.count_hours(found.samples_per_second * 7200) == pytest.approx(2.0)
    assert found.low < found.samples_per_second < found.high


def test_operators_are_timed_once_for_all_numbers_of_replicas(monkeypatch):
    timed = []
    time_ipus = throughput.time_ipus
    monkeypatch.setattr(throughput, "time_ipus", lambda *what: timed.append(what) or time_ipus(*what))
    step = busy_chain()
    pace = Pace(step, LAYOUT, measure_ipus(step, LAYOUT), POD, accumulation=8)

    pace.forecast(), pace.list_scaling()

    assert len(timed) == 1


@pytest.mark.parametrize(("mode", "rounds"), [("training", 12), ("inference", 10)])
def test_stages_are_filled_and_in_training_drained(mode, rounds):
    assert count_rounds(replace(busy_chain(), mode=mode), 8, 3) == rounds
