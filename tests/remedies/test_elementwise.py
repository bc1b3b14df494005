"""Functions of single elements, written with arithmetic that a device has."""

from __future__ import annotations

import math

import pytest
import torch

from porting.remedies.elementwise import SUBSTITUTES
from porting.remedies.entries import Fallback

COMPUTED = {substitute.target: substitute.compute for substitute in SUBSTITUTES}
NUMBERS = torch.tensor([-math.inf, -2.5, -1.0, -0.0, 0.0, 0.3, 1.0, 4.0, math.inf])


@pytest.mark.parametrize("name", ["logaddexp", "hypot", "nan_to_num"])
def test_values_are_torchs(name):
    target = getattr(torch, name)
    arguments = (
        (NUMBERS, NUMBERS.flip(0)) if name != "nan_to_num" else (torch.cat([NUMBERS, torch.tensor([math.nan])]),)
    )

    torch.testing.assert_close(COMPUTED[target](*arguments), target(*arguments), equal_nan=True)


@pytest.mark.parametrize(("target", "low"), [(torch.special.xlogy, 0.0), (torch.special.sinc, -4.0)])
def test_values_of_special_functions_are_torchs(target, low):
    x = torch.linspace(low, 4.0, 17)
    arguments = (x, x) if target is torch.special.xlogy else (x,)

    torch.testing.assert_close(COMPUTED[target](*arguments), target(*arguments))


def test_an_exclusive_or_of_truths_is_torchs():
    x, y = torch.tensor([False, True, False, True]), torch.tensor([False, False, True, True])

    assert torch.equal(COMPUTED[torch.Tensor.__xor__](x, y), x ^ y)


def test_an_exclusive_or_of_numbers_is_left_to_another():
    assert COMPUTED[torch.Tensor.__xor__](torch.tensor([3]), torch.tensor([5])) is Fallback
