"""A step that is compiled is looked at closely where the bound does not fit, and told with the first remedy."""

from __future__ import annotations

import torch
from torch import nn

from porting import PortOptions
from porting.capture import capture_step
from porting.planning.compiled_look import note_memory


def capture_linear_steps(rows, *, width=1024):
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(*[nn.Linear(width, width), nn.ReLU()] * 8)
    batch = [torch.zeros(rows, width), torch.zeros(rows, width)]
    return capture_step(model, batch, loss=nn.MSELoss(), mode="training")


def test_a_step_that_fits_has_no_finding():
    assert note_memory(capture_linear_steps(4, width=8), PortOptions(), None) is None


def test_a_step_that_does_not_fit_is_told_with_a_smaller_micro_batch():
    finding = note_memory(capture_linear_steps(16384), PortOptions(), None)

    assert finding.code == "M001"
    assert "micro_batch=1" in finding.help[0]


def test_a_larger_machine_has_room_for_more():
    graph = capture_linear_steps(4096)

    assert note_memory(graph, PortOptions(), None, target="gc2").code == "M001"
    assert note_memory(graph, PortOptions(), None, target="bow") is None
