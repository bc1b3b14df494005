"""Rules for what is made from nothing leave to torch what they do not know; what they know is compared elsewhere."""

from __future__ import annotations

import pytest
import torch

from porting.capture.factory_shapes import FACTORIES
from porting.capture.plain_shapes import UnknownShape

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.arange.default, (2.5,)),
        (aten.arange.start_step, (0, 1, 0.1)),
        (aten.arange.start_step, (0, 5, 0)),
        (aten.full.default, ([2], 1j)),
        (aten.rand_like.default, (torch.ones(2, 3, device="meta").t(),)),
        (aten.zeros_like.default, (torch.ones(2, 0, device="meta"),)),
    ],
)
def test_what_is_unusual_is_left_to_torch(operator, args):
    with pytest.raises(UnknownShape):
        FACTORIES[operator](*args)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_numbers_have_the_type_that_torch_gives_them(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        assert [FACTORIES[aten.full.default]([1], value).dtype for value in (True, 1, 1.0)] == [
            torch.bool,
            torch.int64,
            default,
        ]
        assert FACTORIES[aten.zeros.default]([1]).dtype == default
    finally:
        torch.set_default_dtype(before)
