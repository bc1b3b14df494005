"""Compiled sums are as exact as those of eager PyTorch, over rows, columns and whole tensors."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.aot.compile_process import compile_in_child
from porting.engines.aot.library import load_program
from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.compiled.program_file import write_program
from porting.engines.compiled.programs import Program


def _sums(images, rows):
    # multiplied, so that there is an operator to fuse the sum with
    squares = images * images
    return squares.sum((0, 2, 3)), squares.sum(), (rows * 3).sum(0), (rows * 3).sum(1)


@pytest.mark.slow
@pytest.mark.parametrize(("memory_format", "num_threads"), [(torch.contiguous_format, 1), (torch.channels_last, 2)])
def test_sums_are_within_a_few_roundings_of_float64(tmp_path, memory_format, num_threads):
    torch.manual_seed(0)
    # 0.9 to 1.1: numbers of one sign, so that a running sum grows and loses their last bits
    images = (torch.rand(16, 12, 16, 16) * 0.2 + 0.9).contiguous(memory_format=memory_format)
    arguments = [images, torch.rand(4096, 1500) * 0.2 + 0.9]
    module = make_fx(_sums, tracing_mode="fake")(*arguments)
    specs = tuple(TensorSpec.of(tensor, name=f"input:{index}:") for index, tensor in enumerate(arguments))
    write_program(Program("step", module, specs, num_results=4), tmp_path / "sums.program")

    compile_in_child(tmp_path / "sums.program", tmp_path / "sums", settings=CompileSettings(num_threads=num_threads))

    found = load_program(tmp_path / "sums")(arguments)
    for sums, expected in zip(found, _sums(*(argument.double() for argument in arguments))):
        # Inductor's own partial sums of 4,096 numbers are 4e-6 away here
        torch.testing.assert_close(sums.double(), expected, rtol=1e-6, atol=0)
