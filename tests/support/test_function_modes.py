"""Function modes that lie above each other are one for torch, and see what they would see one by one."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from porting.support.function_modes import SelectiveMode


class Noting(SelectiveMode):
    """Notes the calls of one function under a name."""

    def __init__(self, name, function, calls):
        super().__init__()
        self.name, self.function, self.calls = name, function, calls

    def concerns(self, func, args, kwargs):
        return func is self.function

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append((self.name, func.__name__))
        if func is self.function:
            return torch.neg(func(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


class Counting(TorchFunctionMode):
    """Counts all calls."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_what_concerns_none_is_passed_on():
    calls = []
    with Counting() as outer, Noting("one", torch.exp, calls), Noting("other", torch.log, calls):
        assert torch._C._len_torch_function_stack() == 2
        torch.relu(torch.ones(1))

    assert calls == []
    assert outer.count >= 1


def test_an_outer_mode_sees_what_an_inner_one_calls():
    calls = []
    with Noting("outer", torch.neg, calls), Noting("inner", torch.exp, calls):
        result = torch.exp(torch.zeros(1))

    assert calls == [("inner", "exp"), ("outer", "exp"), ("outer", "neg")]
    assert result.item() == 1.0


def test_modes_are_gone_after_an_error():
    depth = torch._C._len_torch_function_stack()

    with pytest.raises(ValueError, match="inside"), Noting("one", torch.exp, []), Noting("other", torch.exp, []):
        raise ValueError("inside")

    assert torch._C._len_torch_function_stack() == depth


def test_another_mode_between_two_keeps_its_place():
    calls = []
    with Noting("outer", torch.exp, calls), Counting() as between, Noting("inner", torch.exp, calls):
        torch.exp(torch.zeros(1))

    assert [name for name, _function in calls] == ["inner", "outer"]
    assert between.count >= 1
