"""Which variants of a step are tried, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Variant
from porting.engines.tuning import candidates
from porting.engines.tuning.candidates import PLAIN, list_candidates

WHOLE, FUSED = Variant("aot"), Variant("aot", fused_update=True)


def step(settings, num_layers, *, model=None, **plan):
    """Return the graph of a stack of layers, each with a weight and a bias, and a request to train it."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(num_layers))) if model is None else model
    graph = capture_step(model, [torch.ones(4, 3), torch.ones(4, 3)], loss=F.mse_loss, mode="training")
    names = tuple(info.name for info in graph.parameters)
    return graph, BuildRequest(CallPlan(**plan), (settings,), (names,))


def compiled(graph, request):
    return [variant for variant in list_candidates(graph, request, engines=["aot"]) if variant.engine == "aot"]


def test_plain_replay_comes_first(settings):
    assert list_candidates(*step(settings("ADAM"), 1), engines=["aot"])[0] == PLAIN


def test_whole_steps_of_few_weights_are_compiled(settings):
    found = compiled(*step(settings("ADAM"), 2))

    assert WHOLE in found
    assert not any(variant.fused_update for variant in found)


def test_the_update_of_many_weights_is_left_to_fused_kernels_first(settings):
    found = compiled(*step(settings("ADAM"), 40))

    assert found[:2] == [FUSED, WHOLE]


def test_a_whole_step_that_is_too_large_for_the_compiler_is_not_tried(settings, monkeypatch):
    monkeypatch.setattr(candidates, "_MAX_OPERATORS_OF_STEP", 1000)

    found = compiled(*step(settings("ADAM"), 40))

    assert FUSED in found
    assert WHOLE not in found


def test_an_update_without_a_fused_kernel_is_compiled(settings):
    found = compiled(*step(settings("LAMB"), 40))

    assert found[0] == WHOLE


@pytest.mark.parametrize(("iterations", "expected"), [(1, 0), (100, 1)])
def test_several_steps_are_one_program_where_a_call_has_several(settings, iterations, expected):
    found = compiled(*step(settings("SGD2"), 2, iterations=iterations))

    assert sum(variant.steps_per_run > 1 for variant in found) == expected


@pytest.mark.parametrize(("rows", "is_tried"), [(4, True), (200_000, False)])
def test_a_single_thread_is_tried_for_tiny_steps(settings, monkeypatch, rows, is_tried):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    model = nn.Linear(3, 3)
    graph = capture_step(model, [torch.ones(rows, 3), torch.ones(rows, 3)], loss=F.mse_loss, mode="training")
    names = tuple(info.name for info in graph.parameters)

    found = list_candidates(
        graph, BuildRequest(CallPlan(iterations=10), (settings("SGD2"),), (names,)), engines=["aot"]
    )

    assert (replace(PLAIN, num_threads=1) in found) is is_tried
    assert (Variant("aot", num_threads=1) in found) is is_tried
    assert all(variant.num_threads == (1 if is_tried else None) for variant in found if variant.steps_per_run > 1)
