"""Operators of one's own are registered once, whoever asks."""

from __future__ import annotations

import torch

from porting.support.own_operators import register_operator

_SCHEMA = "double(Tensor x) -> Tensor"


def _register(factor: float):
    return register_operator(
        "porting_test_operators", _SCHEMA, compute=lambda x: factor * x, make_empty=lambda x: torch.empty_like(x)
    )


def test_an_operator_computes_and_has_a_form_without_values():
    operator = _register(2.0)

    assert operator(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert operator(torch.ones(3, device="meta")).shape == (3,)


def test_an_operator_that_is_there_stays():
    first = _register(2.0)

    assert _register(3.0) is first
    assert first(torch.ones(1)).item() == 2.0
