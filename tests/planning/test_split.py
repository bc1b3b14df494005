"""Stages of a pipeline: compared with all possible ones, and with an exact solver."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from porting.planning.memory_model import Layout, measure_ipus
from porting.planning.split import Splitter, collect_cuts, split_step
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
        calls=begins,
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


def tied(length, seed, *groups):
    """Let the operators of each group use the weight of its first."""
    step = uneven(length, seed)
    operations = list(step.operations)
    for first, *others in groups:
        for other in others:
            operations[other] = replace(operations[other], parameters=(f"weight{first}",))
    return replace(step, operations=tuple(operations))


def homes_of(split, group, length):
    """Return the IPUs on which the operators of a group are."""
    ends = (*split.begins[1:], length)
    spans = list(zip(split.ipus, split.begins, ends))
    return {ipu for operator in group for ipu, first, end in spans if first <= operator < end}


def is_legal(ipus, groups):
    """Tell whether each group is on one IPU, and an IPU is come back to only for a weight that waits there."""
    if any(len({ipus[number] for number in group}) > 1 for group in groups):
        return False
    begins = [0, *(number for number in range(1, len(ipus)) if ipus[number] != ipus[number - 1])]
    stages = [(ipus[first], first, end) for first, end in zip(begins, (*begins[1:], len(ipus)))]
    for ipu in set(ipus):
        own = [(first, end) for other, first, end in stages if other == ipu]
        used = [{number for number, group in enumerate(groups) if set(group) & set(range(*span))} for span in own]
        for number in range(1, len(own)):
            if not set().union(*used[:number]) & set().union(*used[number:]):
                return False
        for number, weights in enumerate(used):
            if len(own) > 1 and not weights & set().union(*used[:number], *used[number + 1 :]):
                return False
    return True


def stages_of(ipus):
    """Return where stages begin and their IPUs, of the IPUs of operators."""
    begins = (0, *(number for number in range(1, len(ipus)) if ipus[number] != ipus[number - 1]))
    return begins, tuple(ipus[first] for first in begins)


def pace_of(num_stages, num_ipus):
    """Return the rounds that a micro-batch takes in a step of as few as fill so many IPUs."""
    return (2 * num_ipus - 1 + 2 * num_stages - 2) / (2 * num_ipus - 1)


def all_legal(length, num_ipus, groups):
    """List the stages of all legal ways to lay operators out, with IPUs numbered as they come."""
    for rest in itertools.product(range(num_ipus), repeat=length - 1):
        ipus = (0, *rest)
        firsts = [ipus.index(ipu) for ipu in range(num_ipus) if ipu in ipus]
        if len(firsts) == num_ipus and firsts == sorted(firsts) and is_legal(ipus, groups):
            yield stages_of(ipus)


TIES = {
    "first and last": [(0, 8)],
    "three times": [(0, 4, 8)],
    "in the middle": [(3, 6)],
    "two that cross": [(1, 5), (3, 7)],
    "cells in turn": [(1, 3, 5), (2, 4, 6)],
    "all of one": [tuple(range(9))],
    "neighbours": [(4, 5)],
    "one in another": [(0, 8), (2, 5)],
    "one after another": [(0, 3), (5, 8)],
}


@pytest.mark.parametrize("groups", TIES.values(), ids=TIES)
@pytest.mark.parametrize(("length", "num_ipus"), [(9, 2), (9, 3), (9, 4), (12, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_no_other_way_to_lay_tied_weights_is_quicker(groups, length, num_ipus, seed):
    step = tied(length, seed, *groups)
    costs = [work_of(step, *found) * pace_of(len(found[0]), num_ipus) for found in all_legal(length, num_ipus, groups)]

    split = split_step(step, LAYOUT, num_ipus, limit=NO_LIMIT)

    assert (split is None) == (not costs)
    if split is not None:
        assert split.work * pace_of(len(split.begins), len(set(split.ipus))) == pytest.approx(min(costs))
        assert all(len(homes_of(split, group, length)) == 1 for group in groups)


@pytest.mark.parametrize("groups", [TIES["three times"], TIES["two that cross"]], ids=["three times", "two that cross"])
@pytest.mark.parametrize("seed", range(3))
def test_no_other_way_to_lay_tied_weights_that_fits_is_quicker(groups, seed):
    step = tied(9, seed, *groups)
    found = [
        (bytes_of(step, *stages), work_of(step, *stages) * pace_of(len(stages[0]), 3))
        for stages in all_legal(9, 3, groups)
    ]
    limit = sorted(size for size, _cost in found)[len(found) // 5]

    split = split_step(step, LAYOUT, 3, limit=limit)

    assert split.num_bytes <= limit
    # what two stages share is counted for both while stages are chosen
    assert split.work * pace_of(len(split.begins), len(set(split.ipus))) <= 1.05 * min(
        cost for size, cost in found if size <= limit
    )


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_fits_tied_weights_are_laid_with_the_least(seed):
    groups = TIES["three times"]
    step = tied(9, seed, *groups)
    least = min(bytes_of(step, *stages) for stages in all_legal(9, 3, groups))

    assert split_step(step, LAYOUT, 3, limit=1).num_bytes == pytest.approx(least, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("num_ipus", [3, 4])
def test_an_exact_solver_finds_no_quicker_way_for_a_weight_that_is_used_three_times(num_ipus):
    scipy = pytest.importorskip("scipy.optimize")
    numpy = pytest.importorskip("numpy")
    length, uses = 18, (0, 8, 17)
    step = tied(length, num_ipus, uses)
    works = [op.flops + op.operand_bytes + op.result_bytes for op in step.operations]
    segments = [(first, end) for first in range(length) for end in range(first + 1, length + 1)]
    # a segment with a use is on the weight's IPU, another has its own; one variable each, and the largest work
    shares = [sum(works[first:end]) / sum(works) for first, end in segments]
    at_home = [any(first <= use < end for use in uses) for first, end in segments]

    def solve(num_stages):
        rows = [[float(first <= at < end) for first, end in segments] + [0.0] for at in range(length)]
        rows += [[1.0] * len(segments) + [0.0], [float(not home) for home in at_home] + [0.0]]
        equal = [1.0] * length + [num_stages, num_ipus - 1]
        bounds = [[share * home for share, home in zip(shares, at_home)] + [-1.0]]
        for number, home in enumerate(at_home):
            bounds += [] if home else [[shares[number] * (number == other) for other in range(len(segments))] + [-1.0]]
        found = scipy.milp(
            numpy.array([0.0] * len(segments) + [1.0]),
            constraints=[
                scipy.LinearConstraint(numpy.array(rows), equal, equal),
                scipy.LinearConstraint(numpy.array(bounds), -numpy.inf, 0.0),
            ],
            integrality=[1] * len(segments) + [0],
            bounds=scipy.Bounds(0, 1),
        )
        return found.fun * pace_of(num_stages, num_ipus) if found.success else float("inf")

    split = split_step(step, LAYOUT, num_ipus, limit=NO_LIMIT)

    assert split.work * pace_of(len(split.begins), len(set(split.ipus))) <= 1.001 * min(
        map(solve, range(num_ipus, num_ipus + 3))
    )


def test_a_weight_at_both_ends_makes_a_stage_more_on_its_ipu():
    split = split_step(tied(10, 0, (0, 9)), LAYOUT, 3, limit=NO_LIMIT)

    assert split.ipus == (0, 1, 2, 0)
    assert split.stages[f"layer{split.begins[-1]}"] == 0


def test_more_micro_batches_pay_for_more_stages():
    step = tied(12, 0, *((number, number + 6) for number in range(6)))

    few, many = (Splitter(step, LAYOUT, accumulation=number).split(3, NO_LIMIT) for number in (1, 1000))

    assert len(few.begins) <= len(many.begins)
    assert many.work <= few.work


@pytest.mark.parametrize(("accumulation", "num_stages"), [(1, 3), (3, 2), (4, 2), (50, 3)])
def test_no_more_stages_are_taken_than_an_accumulation_fills(accumulation, num_stages):
    split = Splitter(tied(10, 0, (0, 8)), LAYOUT, accumulation=accumulation).split(2, NO_LIMIT)

    assert len(split.begins) == num_stages


def test_stages_that_an_accumulation_does_not_fill_are_the_last_resort():
    split = Splitter(turns(6, 3), LAYOUT, accumulation=7).split(2, NO_LIMIT)

    assert split.ipus == (0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize("pins", [{"layer6": 1}, {"layer2": 1, "layer7": 2}, {"layer4": 0}], ids=str)
def test_pins_are_respected_beside_tied_weights(pins):
    step = tied(9, 1, (0, 4, 8))

    split = split_step(step, LAYOUT, 3, limit=NO_LIMIT, pins=pins)

    assert {name: homes_of(split, [int(name[-1])], 9) for name in pins} == {name: {ipu} for name, ipu in pins.items()}


def test_a_pin_that_parts_a_tied_weight_leaves_nothing():
    assert split_step(tied(9, 1, (0, 4)), LAYOUT, 2, limit=NO_LIMIT, pins={"layer4": 1}) is None


def test_of_many_places_those_stay_over_which_little_passes():
    step = uneven(30, 3)
    many = collect_cuts(step, 100)
    few = collect_cuts(step, 10)

    assert set(few) < set(many)
    assert 5 <= len(few) <= 10


def test_places_around_a_tied_weight_stay():
    step = tied(40, 3, (0, 17, 39))

    assert {1, 17, 18, 39} <= set(collect_cuts(step, 10))


def test_a_weight_of_everywhere_keeps_no_more_places_than_asked_for():
    step = tied(40, 3, tuple(range(40)))

    assert len(collect_cuts(step, 10)) <= 10


def turns(layers, times):
    """Let a chain of layers run so many times, each time with the same weights."""
    step = tied(layers * times, 1, *(tuple(range(layer, layers * times, layers)) for layer in range(layers)))
    even = tuple(replace(op, flops=10**6, operand_bytes=0, result_bytes=0) for op in step.operations)
    calls = {f"layer{at % layers}#{at // layers + 1}": at for at in range(layers * times)}
    return replace(step, operations=even, calls=calls)


@pytest.mark.parametrize(("layers", "times", "num_ipus"), [(6, 2, 3), (8, 4, 4), (12, 6, 4)])
def test_layers_that_run_again_are_cut_alike_each_time(layers, times, num_ipus):
    split = split_step(turns(layers, times), LAYOUT, num_ipus, limit=NO_LIMIT)

    assert split.work == pytest.approx(1 / num_ipus)
    assert split.ipus == tuple(range(num_ipus)) * times


def test_calls_of_modules_at_one_depth_are_all_places_or_none():
    step = turns(8, 4)

    assert len(collect_cuts(step, 16)) == 31
    assert collect_cuts(step, 15) == {}


@pytest.mark.parametrize("groups", [[], *TIES.values()], ids=["none", *TIES])
def test_on_more_ipus_than_there_are_groups_of_tied_weights_one_stays_empty(groups):
    step = tied(9, 0, *groups)
    most = Splitter(step, LAYOUT).most_ipus

    assert split_step(step, LAYOUT, most, limit=NO_LIMIT) is not None
    assert split_step(step, LAYOUT, most + 1, limit=NO_LIMIT) is None


@pytest.mark.parametrize("groups", [[], TIES["three times"], TIES["one in another"]], ids=["none", "three", "nested"])
@pytest.mark.parametrize("program_bytes", [0, 1000])
def test_stages_are_found_where_some_fit_and_none_where_none_do(groups, program_bytes):
    step, layout = tied(9, 0, *groups), replace(LAYOUT, program_bytes=program_bytes)
    splitter = Splitter(step, layout)
    sizes = sorted(
        max(memory.total_bytes for memory in measure_ipus(step, replace(layout, begins=begins, ipus=ipus)))
        for begins, ipus in all_legal(9, 3, groups)
    )

    assert splitter.fit(3, sizes[len(sizes) // 5]).num_bytes <= sizes[len(sizes) // 5]
    assert splitter.fit(3, sizes[0] - 1) is None
