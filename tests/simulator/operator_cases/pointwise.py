"""Operators that work element by element, comparisons, casts and in-place forms of them."""

from __future__ import annotations

from typing import Dict

import torch

from . import Case, cases

PAIR = ((3, 4), (3, 4))
BROADCAST = ((3, 4), (4,))

POINTWISE: Dict[str, Case] = {
    **cases(
        {
            "torch.abs": torch.abs,
            "torch.neg": lambda x: -x,
            "torch.square": torch.square,
            "torch.sigmoid": torch.sigmoid,
            "torch.sin": torch.sin,
            "torch.cos": torch.cos,
            "torch.tan": lambda x: torch.tan(x / 2),
            "torch.tanh": torch.tanh,
            "torch.sinh": torch.sinh,
            "torch.cosh": torch.cosh,
            "torch.atan": torch.atan,
            "torch.asinh": torch.asinh,
            "torch.erf": torch.erf,
            "torch.erfc": torch.erfc,
            "torch.exp": torch.exp,
            "torch.expm1": torch.expm1,
            "torch.frac": torch.frac,
            "torch.clamp": lambda x: x.clamp(-0.5, 0.7),
            "torch.clamp with min above max": lambda x: torch.clamp(x, 0.7, -0.5),
            "torch.clamp_min": lambda x: torch.clamp_min(x, 0.1),
            "torch.clamp_max": lambda x: torch.clamp_max(x, 0.1),
            "torch.lerp": lambda x: torch.lerp(x, x * 2, 0.3),
            "torch.deg2rad": lambda x: torch.deg2rad(x * 90) + torch.rad2deg(x) / 90,
            "torch.ldexp": lambda x: torch.ldexp(x, torch.ones(4, device=x.device)),
            "torch.real": lambda x: torch.real(x) + torch.conj(x),
        }
    ),
    **cases({"torch.asin": torch.asin, "torch.acos": torch.acos, "torch.atanh": torch.atanh}, low=-0.8, high=0.8),
    **cases(
        {
            "torch.acosh": torch.acosh,
            "torch.log": torch.log,
            "torch.log2": torch.log2,
            "torch.log10": torch.log10,
            "torch.log1p": torch.log1p,
            "torch.sqrt": torch.sqrt,
            "torch.rsqrt": torch.rsqrt,
            "torch.reciprocal": torch.reciprocal,
            "torch.pow": lambda x: torch.pow(x, 2.5) + x**3 + 2**x + x**0.5,
        },
        low=1.2,
        high=2.5,
    ),
    **cases(
        {
            "torch.ceil": torch.ceil,
            "torch.floor": torch.floor,
            "torch.round": torch.round,
            "torch.trunc": torch.trunc,
            "torch.sign": torch.sign,
            "torch.isnan": lambda x: torch.isnan(x / x.floor()),
            "torch.isfinite": lambda x: torch.isfinite(x / x.floor()),
            "torch.isinf": lambda x: torch.isinf(x / x.floor()),
            "torch.logical_not": lambda x: torch.logical_not(x > 0),
            "torch.Tensor.bool": lambda x: x.round().bool(),
            "torch.Tensor.int": lambda x: (3 * x).int(),
            "torch.Tensor.short": lambda x: (3 * x).short(),
            "torch.Tensor.char": lambda x: (3 * x).char(),
            "torch.Tensor.byte": lambda x: (3 * x.abs()).byte(),
            "torch.Tensor.long": lambda x: (3 * x).long(),
        },
        has_gradient=False,
    ),
    **cases(
        {
            "torch.Tensor.half": lambda x: x.half(),
            "torch.Tensor.float": lambda x: x.float(),
            "torch.Tensor.double": lambda x: x.double(),
            "torch.Tensor.to": lambda x: x.to(torch.float32) + x.to(x.device) + x.to(x),
            "torch.Tensor.type": lambda x: x.type(torch.float32) + x.type("torch.FloatTensor"),
            "torch.Tensor.type_as": lambda x: x.half().type_as(x),
            "torch.Tensor.bfloat16": lambda x: (x.round() * 4).bfloat16().float(),
        }
    ),
    **cases(
        {
            "torch.add": lambda x, y: torch.add(x, y, alpha=2) + x.add(1),
            "torch.sub": lambda x, y: torch.sub(x, y, alpha=0.5) - x.sub(1),
            "torch.rsub": lambda x, y: torch.rsub(x, y, alpha=2) + (1 - x),
            "torch.mul": lambda x, y: x * y * 3,
            "torch.addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
            "torch.maximum": torch.maximum,
            "torch.minimum": torch.minimum,
            "torch.max": lambda x, y: torch.max(x, y),
            "torch.min": lambda x, y: torch.min(x, y),
            "torch.clamp with tensors": lambda x, y: torch.clamp(x, y - 0.5, y + 0.5),
            "torch.where": lambda x, y: torch.where(x > y, x, y) + torch.where(x > 0, x, 0.0),
        },
        shapes=BROADCAST,
    ),
    **cases(
        {
            "torch.div": lambda x, y: x / y + torch.div(x, y),
            "torch.true_divide": torch.true_divide,
            "torch.addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=2.0),
            "torch.atan2": torch.atan2,
            "torch.remainder": lambda x, y: torch.remainder(x, y) + x % 0.7,
            "torch.fmod": torch.fmod,
        },
        shapes=PAIR,
        low=0.6,
        high=2.0,
    ),
    **cases(
        {
            "torch.floor_divide": lambda x, y: torch.floor_divide(x * 5, y) + (x // 0.3),
            "torch.div with rounding": lambda x, y: (
                torch.div(x * 5, y, rounding_mode="trunc") + torch.div(x * 5, y, rounding_mode="floor")
            ),
            "torch.eq": lambda x, y: (torch.eq(x, x), x == y),
            "torch.ne": lambda x, y: (torch.ne(x, x), x != y),
            "torch.lt": lambda x, y: (x < y, x.lt(1.0)),
            "torch.le": lambda x, y: (x <= y, x.le(1.0)),
            "torch.gt": lambda x, y: (x > y, x.gt(1.0)),
            "torch.ge": lambda x, y: (x >= y, x.ge(1.0)),
            "torch.logical_and": lambda x, y: torch.logical_and(x > 1, y > 1),
            "torch.logical_or": lambda x, y: torch.logical_or(x > 1, y > 1),
            "torch.bitwise_and": lambda x, y: torch.bitwise_and((9 * x).int(), (9 * y).int()),
            "torch.bitwise_or": lambda x, y: torch.bitwise_or((9 * x).short(), (9 * y).short()),
            "torch.bitwise_xor": lambda x, y: torch.bitwise_xor((9 * x).int(), (9 * y).int()),
            "torch.bitwise_not": lambda x, y: (torch.bitwise_not((9 * x).int()), ~(x > y)),
            "torch.Tensor.__and__": lambda x, y: (x > 1) & (y > 1),
            "torch.Tensor.__or__": lambda x, y: (x > 1) | (y > 1),
            "torch.Tensor.__xor__": lambda x, y: (9 * x).int() ^ (9 * y).int(),
        },
        shapes=PAIR,
        low=0.6,
        high=2.0,
        has_gradient=False,
    ),
}


def written(write, *, keep_dtype=True):
    """Make a function that applies the in-place `write` to a copy of its first argument."""

    def call(x, *others):
        copy = x.clone()
        result = write(copy, *others)
        assert result is copy or result is None or not keep_dtype
        return copy

    return call


IN_PLACE: Dict[str, Case] = {
    **cases(
        {
            "abs_": written(lambda x: x.abs_()),
            "neg_": written(lambda x: x.neg_()),
            "exp_": written(lambda x: x.exp_()),
            "sigmoid_": written(lambda x: x.sigmoid_()),
            "tanh_": written(lambda x: x.tanh_()),
            "sin_ and cos_": written(lambda x: x.sin_().cos_()),
            "clamp_": written(lambda x: x.clamp_(-0.5, 0.7)),
            "clamp_min_": written(lambda x: x.clamp_min_(0.1)),
            "relu_": written(lambda x: torch.relu_(x)),
            "square_": written(lambda x: x.square_()),
            "add_ a number": written(lambda x: x.add_(1.0)),
            "torch.Tensor.masked_fill_": written(lambda x: x.masked_fill_(x.detach() > 0, 0.25)),
            "zero_": written(lambda x: x[0].zero_(), keep_dtype=False),
            "fill_": written(lambda x: x[:, 1].fill_(0.5), keep_dtype=False),
            "transpose_": lambda x: x.clone().t() * 2,
        }
    ),
    **cases(
        {
            "add_": written(lambda x, y: x.add_(y, alpha=2)),
            "sub_": written(lambda x, y: x.sub_(y)),
            "mul_": written(lambda x, y: x.mul_(y)),
            "div_": written(lambda x, y: x.div_(y)),
            "pow_": written(lambda x, y: x.pow_(2)),
            "addcmul_": written(lambda x, y: x.addcmul_(y, y, value=0.5)),
            "addcdiv_": written(lambda x, y: x.addcdiv_(y, y + 1)),
            "copy_": written(lambda x, y: x[1:].copy_(y[1:]), keep_dtype=False),
            "torch.Tensor.copy_": written(lambda x, y: x.copy_(y * x)),
            "+= to a slice": lambda x, y: _augmented(x.clone(), y),
            "out=": lambda x, y: torch.add(x.detach(), y.detach(), out=torch.empty_like(x)) + x,
            "log_": written(lambda x, y: x.log_().mul_(2)),
        },
        shapes=PAIR,
        low=0.6,
        high=2.0,
    ),
}


def _augmented(x, y):
    x[1:] += y[1:]
    x[:, 2] *= 3
    x[0, 1:3] = y[0, :2]
    return x
