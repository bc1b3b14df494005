"""Compiled sums are as exact as those of eager PyTorch, over rows, columns and whole tensors."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.programs import Program


def _sums(rows, *images):
    # multiplied, so that there is an operator to fuse the sum with
    squares = [one * one for one in images]
    of_images = [result for one in squares for result in (one.sum((0, 2, 3)), one.sum())]
    return (*of_images, (rows * 3).sum(0), (rows * 3).sum(1))


def _variances(rows, *images):
    of_images = [result for one in images for result in torch.var_mean(one * one, (0, 2, 3))]
    return (
        *of_images,
        *torch.var_mean(rows * 3 + 64, 0),
        *torch.var_mean(rows * 3, 1),
        *torch.var_mean(rows[:100, :130] * 3, 1),
        torch.var(torch.ones_like(rows) * 0.1, 1, correction=0),
    )


@pytest.mark.slow
@pytest.mark.parametrize("function", [_sums, _variances])
@pytest.mark.parametrize(("memory_format", "num_threads"), [(torch.contiguous_format, 1), (torch.channels_last, 2)])
def test_sums_are_within_a_few_roundings_of_float64(compile_into, tmp_path, function, memory_format, num_threads):
    torch.manual_seed(0)
    # 0.9 to 1.1: numbers of one sign, so that a running sum grows and loses their last bits
    images = [torch.rand(16, num_channels, 16, 16) * 0.2 + 0.9 for num_channels in (8, 12, 40)]
    # 1/128ths, so that the numbers of `rows * 3 + 64` are exact
    rows = (torch.rand(4096, 1500) * 0.2 + 0.9).mul(128).round().div(128)
    arguments = [rows, *(one.contiguous(memory_format=memory_format) for one in images)]
    module = make_fx(function, tracing_mode="fake")(*arguments)
    expected = function(*(argument.double() for argument in arguments))
    specs = tuple(TensorSpec.of(tensor, name=f"input:{index}:") for index, tensor in enumerate(arguments))
    program = Program("step", module, specs, num_results=len(expected))

    found = compile_into(program, tmp_path, num_threads=num_threads)(arguments)

    for sums, wanted in zip(found, expected):
        # Inductor's own are 4e-6 away here, of 4,096 numbers one after the other, and its variances 1e-4
        torch.testing.assert_close(sums.double(), wanted, rtol=1e-6 if function is _sums else 5e-6, atol=1e-12)
