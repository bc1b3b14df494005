"""Memory over time has the terms of the plan, each where it is there, and never more than the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porting.planning.memory_model import Layout, measure_ipus
from porting.planning.memory_timeline import trace_memory
from tests.planning.step_chains import chain

LAYOUT = Layout(begins=(0,), ipus=(0,), marks=(), recomputes=False, accumulates=True, state_bytes=8, program_bytes=0)
RECOMPUTED = replace(LAYOUT, recomputes=True, marks=(3, 7))
CUT = replace(LAYOUT, begins=(0, 4, 9), ipus=(0, 1, 0), recomputes=True)


def trace(layout, step=None, *, ipu=0, **how):
    step = step or chain(12)
    memory = measure_ipus(step, layout)[ipu]
    return memory, trace_memory(step, layout, memory, **how)


@pytest.mark.parametrize("layout", [LAYOUT, RECOMPUTED, CUT])
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_no_moment_holds_more_than_the_plan(layout, mode):
    memory, moments = trace(layout, replace(chain(12), mode=mode))

    assert max(moment.num_bytes for moment in moments) <= memory.total_bytes + len(memory.parts)
    assert all(moment.resident_bytes <= moment.num_bytes for moment in moments)


def test_what_is_kept_grows_forward_and_goes_backward():
    _memory, moments = trace(LAYOUT)
    sizes = [moment.num_bytes for moment in moments]

    assert [moment.phase for moment in moments] == ["forward"] * 12 + ["backward"] * 12
    assert sizes[:12] == sorted(sizes[:12])
    assert sizes[12:] == sorted(sizes[12:], reverse=True)


def test_each_operator_comes_once_in_each_pass_and_backward_in_reverse():
    _memory, moments = trace(CUT)

    modules = [moment.module for moment in moments]
    assert modules[:7] == [f"layer{number}" for number in (0, 1, 2, 3, 9, 10, 11)]
    assert modules[7:] == modules[6::-1]


def test_what_other_micro_batches_have_left_is_always_there():
    alone = trace(replace(CUT, begins=(0,), ipus=(0,)), chain(4))[1][0].resident_bytes
    filled = trace(replace(CUT, begins=(0, 4), ipus=(0, 1)))[1][0].resident_bytes

    # of three micro-batches two others, each with the input of the stage; the outputs are on the last IPU
    assert filled - alone == pytest.approx(1.044 * (2 * 100 - 40), rel=0.02)


def test_a_shorter_story_has_the_same_summit():
    _memory, moments = trace(RECOMPUTED)
    _memory, fewer = trace(RECOMPUTED, most=6)

    assert len(fewer) <= 6
    assert max(moment.num_bytes for moment in fewer) == max(moment.num_bytes for moment in moments)
