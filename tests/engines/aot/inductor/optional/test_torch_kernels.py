"""Pools and enlarged images of compiled programs are torch's, by its kernels where channels lie innermost."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.programs import Program

aten = torch.ops.aten


def pool_and_differentiate(images):
    window = [3, 3], [2, 2], [1, 1]
    hidden = torch.relu(images)
    pooled, indices = aten.max_pool2d_with_indices(hidden, *window)
    gradient = aten.max_pool2d_with_indices_backward(pooled * 2, hidden, *window, [1, 1], False, indices)
    return pooled, gradient, indices


def enlarge_and_differentiate(images):
    enlarged = aten.upsample_bilinear2d(torch.relu(images), [18, 22], False, 2.0, 2.0)
    gradient = aten.upsample_bilinear2d_backward(enlarged * 2, [18, 22], list(images.shape), False, 2.0, 2.0)
    return enlarged, gradient


def pool_and_enlarge(images):
    return (*pool_and_differentiate(images), *enlarge_and_differentiate(images))


OPERATORS = (b"aoti_torch_cpu_max_pool2d_with_indices\0", b'"aten::upsample_bilinear2d"')


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("is_last", [True, False])
def test_a_compiled_program_calls_torchs_kernels(compile_into, tmp_path, is_last):
    images = torch.randn(2, 16, 9, 11, generator=torch.Generator().manual_seed(0))
    if is_last:
        images = images.contiguous(memory_format=torch.channels_last)
    module = make_fx(pool_and_enlarge, tracing_mode="fake")(images)
    expected = pool_and_enlarge(images)
    program = Program("step", module, (TensorSpec.of(images, name="images"),), num_results=len(expected))

    found = compile_into(program, tmp_path)([images])

    for value, wanted in zip(found, expected):
        torch.testing.assert_close(value, wanted, rtol=0.0 if is_last else 1e-6, atol=0.0 if is_last else 1e-6)
    # the names of operators that torch's library has no function for are in a file
    written = b"".join(file.read_bytes() for file in (tmp_path / "out").iterdir())
    are_called = [operator in written for operator in OPERATORS]
    assert are_called == [is_last, is_last]
