"""Choices choose only what a step has and what may pay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.contract.choices import choose_fewer_threads, list_layouts, list_updates


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [(nn.Linear(4, 3), (8, 4), [False]), (nn.Conv2d(2, 3, 3), (1, 2, 8, 8), [False, True])],
)
def test_only_convolutions_have_two_memory_formats(layer, shape, expected):
    assert list_layouts(capture_step(layer, [torch.ones(shape)], mode="inference")) == expected


@pytest.mark.parametrize(("optimizer", "expected"), [("ADAM", [False, True]), ("LAMB", [False])])
def test_an_update_is_fused_where_torch_has_a_kernel(settings, optimizer, expected):
    assert list_updates(BuildRequest(CallPlan(), groups=(settings(optimizer),))) == expected


@pytest.mark.parametrize(("rows", "threads", "expected"), [(4, 2, 1), (4, 1, None), (200_000, 2, None)])
def test_a_tiny_step_may_be_faster_with_one_thread(monkeypatch, rows, threads, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    graph = capture_step(nn.Linear(3, 3), [torch.ones(rows, 3)], mode="inference")

    assert choose_fewer_threads(graph) == expected
