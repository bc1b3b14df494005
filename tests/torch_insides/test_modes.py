"""Torch's modes and dispatch, as this package names them."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from porting.torch_insides.modes import (
    DisableTorchFunction,
    count_function_modes,
    find_top_function_mode,
    is_torch_function_disabled,
    probe,
)


class Counting(TorchFunctionMode):
    """Counts the functions of torch that are called in it."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_this_torch_has_all_parts():
    assert probe() == ""


def test_modes_are_counted_and_the_last_is_on_top():
    before = count_function_modes()
    with Counting() as first, Counting() as second:
        assert count_function_modes() == before + 2
        assert find_top_function_mode() is second
        assert first is not second
    assert count_function_modes() == before


def test_no_mode_sees_what_is_called_while_they_are_disabled():
    with Counting() as counting, DisableTorchFunction():
        assert is_torch_function_disabled()
        torch.ones(2).add(1)

    assert counting.calls == 0
