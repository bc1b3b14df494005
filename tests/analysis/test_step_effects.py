"""Inputs that a step writes to, and random numbers that it draws, are noted."""

from __future__ import annotations

import torch
from torch import nn

from porting.analysis.step_effects import iter_random_numbers, iter_written_inputs
from porting.capture import capture_step


def graph_of(model):
    return capture_step(model, [torch.rand(3, 4)], mode="inference")


def made(forward):
    return type("Made", (nn.Module,), {"forward": forward})()


def test_a_write_to_an_input_is_told_at_its_line():
    def forward(self, x):
        y = x[0]
        y += 1
        return x * 2

    (finding,) = iter_written_inputs(graph_of(made(forward)))

    assert (finding.code, finding.place.line) == ("C045", forward.__code__.co_firstlineno + 2)


def test_a_write_to_a_new_tensor_is_none():
    assert not list(iter_written_inputs(graph_of(made(lambda self, x: (x * 2).add_(1)))))


def test_random_operators_are_counted_with_their_modules():
    (finding,) = iter_random_numbers(graph_of(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.1))))

    assert "2 operators" in finding.message
    assert finding.notes[0] == "in `0`, `2`"


def test_a_rate_of_zero_draws_nothing():
    assert not list(iter_random_numbers(graph_of(nn.Dropout(0.0))))
