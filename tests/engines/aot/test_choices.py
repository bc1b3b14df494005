"""Whole steps are compiled as large as a compiler can take, in the memory formats and with the threads that pay."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.aot import choices
from porting.engines.aot.choices import list_whole_steps
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Choice

WHOLE, FUSED = Choice("aot"), Choice("aot", fused_update=True)


def step(settings, num_layers, *, rows=4, **plan):
    """Return the graph of a stack of layers, each with a weight and a bias, and a request to train it."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(num_layers)))
    graph = capture_step(model, [torch.ones(rows, 3), torch.ones(rows, 3)], loss=F.mse_loss, mode="training")
    names = tuple(info.name for info in graph.parameters)
    return graph, BuildRequest(CallPlan(**plan), (settings,), (names,))


def compiled(graph, request):
    return list_whole_steps("aot", graph, request)


@pytest.mark.parametrize("num_layers", [2, 40])
def test_whole_steps_are_compiled(settings, num_layers):
    found = compiled(*step(settings("ADAM"), num_layers))

    assert WHOLE in found
    assert not any(choice.fused_update for choice in found)


def test_an_update_that_makes_a_step_too_large_for_the_compiler_is_left_to_fused_kernels(settings, monkeypatch):
    monkeypatch.setattr(choices, "_MAX_OPERATORS_OF_STEP", 1000)

    assert compiled(*step(settings("ADAM"), 40)) == [FUSED]


def test_a_step_that_is_large_without_its_update_is_compiled_with_it(settings, monkeypatch):
    monkeypatch.setattr(choices, "_MAX_OPERATORS_OF_STEP", 1000)
    monkeypatch.setattr(choices, "_LARGE_SHARE_OF_UPDATE", 0.99)

    assert compiled(*step(settings("ADAM"), 40)) == [WHOLE]


def test_an_update_without_a_fused_kernel_is_compiled(settings):
    found = compiled(*step(settings("LAMB"), 40))

    assert found[0] == WHOLE


@pytest.mark.parametrize(("iterations", "expected"), [(1, 0), (100, 1)])
def test_several_steps_are_one_program_where_a_call_has_several(settings, iterations, expected):
    found = compiled(*step(settings("SGD2"), 2, iterations=iterations))

    assert sum(choice.steps_per_run > 1 for choice in found) == expected


def test_the_memory_format_that_convolutions_like_comes_first():
    graph = capture_step(nn.Conv2d(2, 3, 3), [torch.ones(1, 2, 8, 8)], mode="inference")

    assert compiled(graph, BuildRequest(CallPlan()))[:2] == [Choice("aot", channels_last=True), WHOLE]


@pytest.mark.parametrize(("rows", "is_tried"), [(4, True), (200_000, False)])
def test_a_single_thread_is_tried_for_tiny_steps(settings, monkeypatch, rows, is_tried):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    found = compiled(*step(settings("SGD2"), 1, rows=rows, iterations=10))

    assert (Choice("aot", num_threads=1) in found) is is_tried
    assert all(choice.num_threads == (1 if is_tried else None) for choice in found if choice.steps_per_run > 1)
