"""Programs as shared libraries: what the engine `aot` does in the process that compiles.

What was measured and is used here (mushroom MLP, one thread, seconds of the C++ compiler): the tests of each
instruction set that Inductor compiles cost 7, answered from the compiler's flags 0.1; debug information costs 1 and
makes the library four times as large; checks of the arguments, which `LoadedProgram` does, cost 0.5 and grow with the
number of parameters; torch's runtime of a program 5 (`library_build`). Stacks of the traces that Inductor makes take a
third of their time.
One process for several programs would save the loading for all but the first, and there is seldom a second. Stack
allocation, memory planning and fused multiply-add change nothing measurable.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, List

import torch
import torch._inductor
import torch.fx.config
from torch._inductor import cpu_vec_isa
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.cpp_builder import get_cpp_compiler
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ..compiled.call_layout import describe_layout
from ..compiled.compile_settings import CompileSettings
from ..compiled.program_file import read_program
from ..compiled.programs import Program
from .convolution_kernels import use_faster_convolutions
from .index_guards import install_index_guards
from .inductor_changes import find_function
from .library import LIBRARY, OPERATORS, RUNNER, load_program
from .library_build import choose_level_of_calls, install_library_build
from .loop_renames import install_loop_renames
from .matmul_kernels import use_faster_products
from .repeated_values import compute_repeated_values_once
from .short_sums import install_short_sums
from .torch_kernels import use_torch_kernels
from .vector_width import use_better_vectors

__all__ = ["compile_here", "make_example_arguments", "try_out"]

_logger = logging.getLogger("porting")

_NO_CHECKS = """
static inline bool _check_aoti_runtime_check_inputs_env() { return false; }
static inline void __check_inputs_outputs(AtenTensorHandle*, AtenTensorHandle*) {}
"""


def compile_here(program_file: Path, folder: Path, *, settings: CompileSettings) -> None:
    """Compile a program in this process and put a library and what `load_program` must know into `folder`."""
    program = read_program(program_file)
    _prepare_inductor(settings)
    # A program that was read from a file has no values; shapes and strides are needed to choose.
    FakeTensorProp(program.module).propagate(*make_example_arguments(program))
    lanes = use_better_vectors(program.module)
    # Other kernels round otherwise than those of ATen, which a deterministic program must not.
    if not settings.is_deterministic:
        use_faster_convolutions(program.module, num_threads=settings.num_threads, lanes=lanes)
        use_faster_products(program.module, num_threads=settings.num_threads)
    build = Path("build").resolve()
    level_of_calls = choose_level_of_calls(program.module.graph)
    install_library_build(level_of_calls=level_of_calls)
    options = {
        # for torch's own way to build
        "aot_inductor.compile_wrapper_opt_level": level_of_calls[1:] or "O1",
        "aot_inductor.output_path": str(build / LIBRARY),
        "aot_inductor.enable_frame_pointer": False,
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.precompile_headers": False,
        "cpp_cache_precompile_headers": False,
        "cpp.threads": settings.num_threads,
        "cpp.vec_isa_ok": True,
        # Otherwise fused operators keep single precision between them where the graph rounds to a half type.
        "emulate_precision_casts": program.has_halves,
        "epilogue_fusion": False,  # the kernels of convolutions end with storing their result
        "fallback_random": True,  # the operators of eager PyTorch draw the numbers, in the graph's order
        "layout_optimization": False,  # it would copy each weight of a convolution in each step
        # `LoadedProgram` has compared shapes and strides before the first kernel runs.
        "size_asserts": False,
    }
    library = torch._inductor.aot_compile(program.module, tuple(make_example_arguments(program)), options=options)
    shutil.copyfile(str(library), folder / LIBRARY)
    for operators in build.glob("*.wrapper.json"):
        shutil.copyfile(operators, folder / OPERATORS)
    facts = {
        "torch": torch.__version__,
        "num_results": program.num_results,
        "arguments": [describe_layout(spec) for spec in program.arguments],
    }
    (folder / RUNNER).write_text(json.dumps(facts), encoding="utf-8")
    # A library that crashes or hangs does so here, where the parent only sees a failed compilation.
    try_out(load_program(folder), program)


def _prepare_inductor(settings: CompileSettings) -> None:
    """Change Inductor, in this process: faster to compile, exact in its sums, and its code does not end the process."""
    install_loop_renames()
    install_index_guards()
    install_short_sums()
    use_torch_kernels()
    compute_repeated_values_once()
    # Where in this package a program was written says nothing, and takes a third of the time of tracing it again.
    torch.fx.config.do_not_emit_stack_traces = True
    torch.use_deterministic_algorithms(settings.is_deterministic)
    torch.set_num_threads(1)
    # These are Inductor's internals. A torch that has renamed one is refused instead of compiled slowly or wrongly.
    for owner, name, function in (
        (cpu_vec_isa.VecISA, "check_build", _knows_instructions),
        (CppWrapperCpu, "generate_input_output_runtime_checks", lambda wrapper: wrapper.prefix.splice_aot(_NO_CHECKS)),
    ):
        find_function(owner, name)
        setattr(owner, name, function)


def _knows_instructions(isa: Any, _code: str) -> bool:
    """Ask the C++ compiler whether it knows the flags of an instruction set, which torch says the processor has."""
    command = [get_cpp_compiler(), *isa.build_arch_flags().split(), "-x", "c++", "-E", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def try_out(run: Callable[[List[torch.Tensor]], Any], program: Program) -> None:
    """Run what was compiled once, on zeros, so that what ends or hangs a process does so to this one.

    Exceptions say nothing: there are steps that zeros do not suit.
    """
    arguments = [argument.zero_() for argument in make_example_arguments(program)]
    try:
        run(arguments)
    except Exception as error:
        _logger.info("the program does not run on zeros: %s", error)


def make_example_arguments(program: Program) -> List[Any]:
    """Return tensors like those that the program takes, without values and, until they are touched, without memory."""
    return [torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype) for spec in program.arguments]
