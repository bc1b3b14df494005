"""What the compiling process does to Inductor changes no result, and its failures have reasons."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.aot.compile_process import compile_in_child
from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.compiled.programs import Program
from porting.engines.contract.failures import CompileFailure
from tests.engines.compiled_step import step_arguments, step_program


def _pooled(images, grad):
    leaf = images.detach().requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(F.max_pool2d(leaf.relu(), 3, stride=2, padding=1), leaf, grad)
    return (found.clone(),)


@pytest.mark.slow
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_of_a_maximum_pool_is_torchs(compile_into, tmp_path, memory_format):
    torch.manual_seed(0)
    images = torch.randn(2, 8, 9, 9).contiguous(memory_format=memory_format)
    arguments = [images, torch.randn(2, 8, 5, 5)]
    module = make_fx(_pooled, tracing_mode="fake")(*arguments)
    specs = tuple(TensorSpec.of(tensor, name=f"input:{index}:") for index, tensor in enumerate(arguments))

    found = compile_into(Program("step", module, specs, num_results=1), tmp_path)(arguments)

    torch.testing.assert_close(found, list(_pooled(*arguments)))


@pytest.mark.slow
def test_a_program_file_that_is_damaged_is_a_failure_of_the_compiler(tmp_path):
    (tmp_path / "step.program").write_bytes(b"nothing")

    with pytest.raises(CompileFailure, match="it is no program file"):
        compile_in_child(tmp_path / "step.program", tmp_path / "step", settings=CompileSettings())


@pytest.mark.slow
def test_a_step_that_does_not_suit_zeros_is_compiled_all_the_same():
    from porting.engines.aot.compiler import try_out

    given = []

    def refuse(tensors):
        given.extend(tensors)
        raise RuntimeError("the matrix is singular")

    try_out(refuse, step_program())

    assert [tensor.shape for tensor in given] == [tensor.shape for tensor in step_arguments()]
    assert not any(tensor.any() for tensor in given)
