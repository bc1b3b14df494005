"""Stages of a pipeline: compared with all possible ones, and with an exact solver."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from porting.planning.memory_model import Layout, measure_ipus
from porting.planning.split import collect_cuts, split_step
from tests.planning.step_chains import chain, operation

LAYOUT = Layout(begins=(0,), ipus=(0,), marks=(), recomputes=True, accumulates=True, state_bytes=8, program_bytes=0)
NO_LIMIT = 1 << 60


def uneven(length, seed):
    """Make a chain of operators of different work, whose weights and values have different sizes."""
    drawn = random.Random(seed)
    step = chain(length)
    sizes = [drawn.randint(1, 60) for _ in range(length)]
    operations = [
        replace(operation(number), flops=drawn.randint(1, 100) * 10_000, parameters=(f"weight{number}",))
        for number in range(length)
    ]
    parameters = [replace(info, shape=(size, 10)) for info, size in zip(step.parameters, sizes)]
    values = [replace(value, num_bytes=drawn.randint(10, 3000)) for value in step.values]
    begins = {f"layer{number}": number for number in range(length)}
    return replace(
        step,
        operations=tuple(operations),
        parameters=tuple(parameters),
        values=tuple(values),
        called_once=tuple(begins),
    )


def work_of(step, begins, ipus):
    """Return the share of the slowest IPU of all floating-point operations and bytes."""
    works = [op.flops + op.operand_bytes + op.result_bytes for op in step.operations]
    sums = [0] * (max(ipus) + 1)
    for ipu, first, end in zip(ipus, begins, (*begins[1:], len(works))):
        sums[ipu] += sum(works[first:end])
    return max(sums) / sum(works)


def bytes_of(step, begins, ipus):
    layout = replace(LAYOUT, begins=begins, ipus=ipus)
    return max(memory.total_bytes for memory in measure_ipus(step, layout))


def find_best(step, num_ipus, limit):
    """Try all cuts: the least work of the slowest stage of those that fit, or None."""
    found = [
        work_of(step, (0, *begins), tuple(range(num_ipus)))
        for begins in itertools.combinations(range(1, len(step.operations)), num_ipus - 1)
        if bytes_of(step, (0, *begins), tuple(range(num_ipus))) <= limit
    ]
    return min(found, default=None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_ipus", [2, 3, 4])
def test_no_other_cut_is_quicker(seed, num_ipus):
    step = uneven(12, seed)

    split = split_step(step, LAYOUT, num_ipus, limit=NO_LIMIT)

    assert split.work == pytest.approx(find_best(step, num_ipus, NO_LIMIT))
    assert split.work == pytest.approx(work_of(step, split.begins, split.ipus))


@pytest.mark.parametrize("seed", range(6))
def test_no_other_cut_that_fits_is_quicker(seed):
    step = uneven(10, seed)
    sizes = sorted(bytes_of(step, (0, *begins), (0, 1, 2)) for begins in itertools.combinations(range(1, 10), 2))
    limit = sizes[len(sizes) // 5]

    split = split_step(step, LAYOUT, 3, limit=limit)

    assert split.num_bytes <= limit
    # what two stages share is counted for both while stages are chosen
    assert split.work <= 1.05 * find_best(step, 3, limit)


@pytest.mark.parametrize("seed", range(4))
def test_where_nothing_fits_the_fullest_ipu_holds_the_least(seed):
    step = uneven(9, seed)
    least = min(bytes_of(step, (0, *begins), (0, 1, 2)) for begins in itertools.combinations(range(1, 9), 2))

    assert split_step(step, LAYOUT, 3, limit=1).num_bytes == pytest.approx(least, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "num_ipus"), [(24, 4), (40, 8)])
def test_an_exact_solver_finds_nothing_quicker(length, num_ipus):
    scipy = pytest.importorskip("scipy.optimize")
    numpy = pytest.importorskip("numpy")
    step = uneven(length, seed=length)
    works = [op.flops + op.operand_bytes + op.result_bytes for op in step.operations]
    segments = [(first, end) for first in range(length) for end in range(first + 1, length + 1)]
    # one variable for each segment, whether it is a stage, and the largest work, which is made least
    costs = numpy.zeros(len(segments) + 1)
    costs[-1] = 1
    rows, lows, highs = [], [], []

    def demand(coefficients, low, high):
        row = numpy.zeros(len(segments) + 1)
        for index, value in coefficients:
            row[index] = value
        rows.append(row), lows.append(low), highs.append(high)

    for position in range(length):
        covers = [(index, 1) for index, (first, end) in enumerate(segments) if first <= position < end]
        demand(covers, 1, 1)
    demand([(index, 1) for index in range(len(segments))], num_ipus, num_ipus)
    for index, (first, end) in enumerate(segments):
        demand([(index, sum(works[first:end]) / sum(works)), (len(segments), -1)], -numpy.inf, 0)
    found = scipy.milp(
        costs,
        constraints=scipy.LinearConstraint(numpy.array(rows), lows, highs),
        integrality=[1] * len(segments) + [0],
        bounds=scipy.Bounds(0, 1),
    )

    split = split_step(step, LAYOUT, num_ipus, limit=NO_LIMIT)

    assert split.work <= found.fun * 1.001


def test_a_pin_is_respected():
    split = split_step(uneven(8, 1), LAYOUT, 2, limit=NO_LIMIT, pins={"layer2": 1})

    assert split.begins[1] <= 2


def test_pins_that_contradict_each_other_leave_nothing():
    assert split_step(uneven(8, 1), LAYOUT, 2, limit=NO_LIMIT, pins={"layer2": 1, "layer6": 0}) is None


def test_too_few_places_leave_nothing():
    assert split_step(uneven(3, 1), LAYOUT, 4, limit=NO_LIMIT) is None


def tied(length, seed, first, last):
    """Make operator `last` use the weight of operator `first` again."""
    step = uneven(length, seed)
    operations = list(step.operations)
    operations[last] = replace(operations[last], parameters=(f"weight{first}",))
    return replace(step, operations=tuple(operations))


@pytest.mark.parametrize("seed", range(4))
def test_a_tied_weight_is_on_one_ipu(seed):
    step = tied(10, seed, 0, 9)

    split = split_step(step, LAYOUT, 3, limit=NO_LIMIT)

    ends = (*split.begins[1:], 10)
    homes = {ipu for ipu, first, end in zip(split.ipus, split.begins, ends) if first <= 0 < end or first <= 9 < end}
    assert len(homes) == 1


def test_a_tied_weight_at_the_end_makes_a_stage_more_on_its_ipu():
    split = split_step(tied(10, 0, 0, 9), LAYOUT, 3, limit=NO_LIMIT)

    assert split.ipus == (0, 1, 2, 0)
    assert split.stages[f"layer{split.begins[-1]}"] == 0


def test_of_many_places_those_stay_over_which_little_passes():
    step = uneven(30, 3)
    many = collect_cuts(step, 100)
    few = collect_cuts(step, 10)

    assert set(few) < set(many)
    assert 5 <= len(few) <= 10
