"""A traced step runs as many micro-batches at once as changes nothing, and fuses only known updates."""

from __future__ import annotations

from dataclasses import replace

from porting.engines.calls.executable import Choice
from porting.engines.compiled.step_program import build_programs
from tests.engines.compiled.step_requests import FUSED, inference, reason, training


def test_micro_batches_run_at_once_where_that_changes_nothing(settings):
    at_once = build_programs(*training(settings(), accumulation=4))
    one_by_one = build_programs(*training(settings(), accumulation=4, choice=Choice(micro_batches_at_once=1)))

    assert at_once.by_role["step"].num_operators < one_by_one.by_role["step"].num_operators


def test_an_update_that_torch_has_no_fused_kernel_for_is_not_fused(settings):
    assert reason(*training(settings("LAMB"), choice=FUSED)) == "torch has no fused kernel for the update of LAMB"


def test_there_is_no_update_to_fuse_in_inference():
    graph, request = inference(lambda module, x: x * module.weight)

    assert reason(graph, replace(request, choice=FUSED)).startswith("nothing is trained")
