"""Torch's table of what operators are made of."""

from __future__ import annotations

import torch

from porting.torch_insides.decompositions import decomposition_table, probe


def test_this_torch_has_the_table():
    assert probe() == ""


def test_an_operator_is_computed_by_its_parts():
    x = torch.linspace(-2, 2, 9)
    silu = decomposition_table[torch.ops.aten.silu.default]

    torch.testing.assert_close(silu(x), torch.nn.functional.silu(x))
