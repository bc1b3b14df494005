"""Plans cut the units of a step into stretches, by policies whose promises can be checked on small graphs."""

from __future__ import annotations

import pytest

from porting.engines.recompute.plans import plan_chen, plan_everything, plan_lower_sets
from porting.engines.recompute.value_units import Unit, UnitGraph


def chain(*sizes):
    """Make a graph in which each unit reads the one before it."""
    units = tuple(Unit((), size, flops=size, is_kept=False) for size in sizes)
    before = tuple(frozenset([number - 1] if number else []) for number in range(len(sizes)))
    return UnitGraph(units, before, before)


PLANS = {
    "everything": plan_everything,
    "chen": plan_chen,
    "time": lambda graph: plan_lower_sets(graph, saves_time=True),
    "memory": lambda graph: plan_lower_sets(graph, saves_time=False),
}


@pytest.mark.parametrize("policy", PLANS)
@pytest.mark.parametrize("count", [1, 2, 9, 30])
def test_every_unit_runs_once_in_the_forward_pass(policy, count):
    plan = PLANS[policy](chain(*[4] * count))

    assert sorted(unit for stretch in plan.stretches for unit in stretch) == list(range(count))
    assert len(plan.recomputed) == len(plan.stretches)


@pytest.mark.parametrize("policy", ["chen", "time", "memory"])
def test_the_last_stretch_is_not_computed_again(policy):
    assert PLANS[policy](chain(*[4] * 16)).recomputed[-1] is False


def test_chen_cuts_a_chain_into_about_the_root_of_its_length():
    assert 3 <= len(plan_chen(chain(*[4] * 16)).stretches) <= 5


def test_a_budget_sets_the_bytes_of_a_segment():
    plan = plan_chen(chain(*[4] * 16), budget_bytes=8)

    assert {len(stretch) for stretch in plan.stretches} == {2}


def num_forgotten(plan):
    """Count what is computed again in a chain, where the last unit of each stretch is kept."""
    return sum(len(stretch) - 1 for stretch, again in zip(plan.stretches, plan.recomputed) if again)


def test_a_budget_for_everything_computes_nothing_again():
    assert num_forgotten(plan_lower_sets(chain(*[4] * 16), budget_bytes=10_000, saves_time=True)) == 0


def test_the_least_budget_computes_something_again():
    assert num_forgotten(plan_lower_sets(chain(*[4] * 16), saves_time=True)) > 0


def test_a_budget_below_the_least_possible_one_is_raised_to_it():
    least = plan_lower_sets(chain(*[4] * 16), saves_time=True).budget_bytes

    assert plan_lower_sets(chain(*[4] * 16), budget_bytes=1, saves_time=True).budget_bytes == least
