"""Two captures of one `forward` are compared: what Python has decided otherwise would be frozen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.capture.frozen_values import list_frozen_values


class Counting(nn.Module):
    """Computes a function of the input and of how often `forward` has run."""

    def __init__(self, function):
        super().__init__()
        self.function, self.runs = function, 0

    def forward(self, x):
        self.runs += 1
        return self.function(x, self.runs)


def capture_twice(function):
    model = Counting(function)
    return [capture_step(model, [torch.ones(2, 3)], mode="inference") for _ in range(2)]


@pytest.mark.parametrize(
    "function", [lambda x, _runs: x * 2, lambda x, _runs: x + float("nan"), lambda x, _runs: (x, "a text")]
)
def test_what_does_not_depend_on_the_run_is_not_frozen(function):
    assert list_frozen_values(*capture_twice(function)) == []


def test_a_number_that_changes_is_found_with_its_line():
    (found,) = list_frozen_values(*capture_twice(lambda x, runs: x * runs))

    assert (found.before, found.after, found.changes_operators) == (1, 2, False)
    assert found.place.file == __file__


def test_a_constant_that_changes_is_found():
    (found,) = list_frozen_values(*capture_twice(lambda x, runs: x * torch.tensor(float(runs))))

    assert (found.before, found.after) == (1.0, 2.0)


def test_another_branch_changes_the_operators():
    (found,) = list_frozen_values(*capture_twice(lambda x, runs: x.exp() if runs == 1 else x.sin()))

    assert (found.before, found.after, found.changes_operators) == ("exp.default", "sin.default", True)


def test_an_operator_that_is_left_out_is_compared_with_nothing():
    (found,) = list_frozen_values(*capture_twice(lambda x, runs: x.exp().sin() if runs == 1 else x.exp()))

    assert (found.before, found.after) == ("sin.default", "nothing")


def test_a_plain_value_that_forward_returns_is_compared():
    (found,) = list_frozen_values(*capture_twice(lambda x, runs: (x * 2, runs)))

    assert (found.before, found.after, found.place) == (1, 2, None)
