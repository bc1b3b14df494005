"""Compile programs to shared libraries, in the process that the engine `aot` starts for it.

The changes to Inductor that need no program beforehand are tables here. Debug information would cost a second and make
the library four times as large; the stacks of the traces that Inductor makes take a third of their time. One process
for several programs would save the loading for all but the first, and there is seldom a second. Stack allocation,
memory planning and fused multiply-add change nothing measurable.
"""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, ContextManager, List, Mapping, Tuple

import torch
import torch.fx.config
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ...torch_insides.inductor import aot_compile, choose_settings, probe_required
from ...torch_insides.parts import MissingPart
from ..compiled.call_layout import describe_layout
from ..compiled.compile_settings import CompileSettings
from ..compiled.program_file import read_program
from ..compiled.programs import Program
from .inductor.optional.convolution_kernels import use_faster_convolutions
from .inductor.optional.library_build import choose_level_of_calls, own_library_build
from .inductor.optional.matmul_kernels import use_faster_products
from .inductor.optional.quick_checks import quick_checks
from .inductor.optional.repeated_values import repeated_values_once
from .inductor.optional.short_sums import short_sums
from .inductor.optional.torch_kernels import torch_kernels
from .inductor.optional.vector_width import use_better_vectors
from .inductor.required.index_guards import guarded_indices
from .inductor.required.loop_renames import renamed_loops
from .inductor.unwanted import is_wanted, require_known_changes
from .library import LEFT_OUT, LIBRARY, OPERATORS, RUNNER, load_library

__all__ = ["compile_here", "make_example_arguments", "probe", "try_out"]

_logger = logging.getLogger("porting")

probe = probe_required
"""Return why this torch compiles nothing, before there is a program to compile; empty if it may."""


def compile_here(program_file: Path, folder: Path, *, settings: CompileSettings) -> None:
    """Compile a program in this process and put a library and what `load_library` must know into `folder`."""
    # Where in this package a program was written says nothing, and takes a third of the time of tracing it again.
    torch.fx.config.do_not_emit_stack_traces = True
    torch.use_deterministic_algorithms(settings.is_deterministic)
    torch.set_num_threads(1)
    build = Path("build").resolve()
    require_known_changes()
    try:
        program, library, left_out = _compile_program(read_program(program_file), build, settings)
    except Exception as error:
        # a C++ compiler would refuse the same code again, and there would be no more memory or room
        if _is_of_cpp_compiler(error) or isinstance(error, (MemoryError, OSError)):
            raise
        # The names are those that are known, and what is behind them may be another: the program is compiled as
        # torch would.
        _logger.info("compiling once more, without what makes programs faster", exc_info=error)
        program, library, _without = _compile_program(read_program(program_file), build, settings, is_plain=True)
        left_out = [f"all that makes compiled steps faster, because of {type(error).__name__}: {_take_line(error)}"]
    shutil.copyfile(str(library), folder / LIBRARY)
    for operators in build.glob("*.wrapper.json"):
        shutil.copyfile(operators, folder / OPERATORS)
    facts = {
        "torch": torch.__version__,
        "num_results": program.num_results,
        "arguments": [describe_layout(spec) for spec in program.arguments],
        LEFT_OUT: left_out,
    }
    (folder / RUNNER).write_text(json.dumps(facts), encoding="utf-8")
    # A library that crashes or hangs does so here, where the parent only sees a failed compilation.
    try_out(load_library(folder), program)


def _compile_program(
    program: Program, build: Path, settings: CompileSettings, *, is_plain: bool = False
) -> Tuple[Program, str, List[str]]:
    """Return the program, the path of its library, and what was left out; the less of it if it `is_plain`."""
    # A program that was read from a file has no values; shapes and strides are needed to choose.
    FakeTensorProp(program.module).propagate(*make_example_arguments(program))
    with ExitStack() as changes:
        for change in _REQUIRED:
            changes.enter_context(change())
        level_of_calls = choose_level_of_calls(program.module.graph)
        left_out = [] if is_plain else _change_what_can_be(changes, program, settings, level_of_calls)
        options = {
            # for torch's own way to build
            "aot_inductor.compile_wrapper_opt_level": level_of_calls[1:] or "O1",
            "aot_inductor.enable_frame_pointer": False,
            "aot_inductor.enable_line_tables": False,
            "aot_inductor.precompile_headers": False,
            "cpp_cache_precompile_headers": False,
            "cpp.vec_isa_ok": True,
            "epilogue_fusion": False,  # the kernels of convolutions end with storing their result
            "layout_optimization": False,  # it would copy each weight of a convolution in each step
            # `LoadedLibrary` has compared shapes and strides before the first kernel runs.
            "size_asserts": False,
        }
        required = {
            "aot_inductor.output_path": str(build / LIBRARY),
            "cpp.threads": settings.num_threads,
            # Otherwise fused operators keep single precision between them where the graph rounds to a half type.
            "emulate_precision_casts": program.has_halves,
            "fallback_random": True,  # the operators of eager PyTorch draw the numbers, in the graph's order
        }
        options = choose_settings(options, required=required)
        library = aot_compile(program.module, tuple(make_example_arguments(program)), options=options)
    return program, str(library), left_out


def _change_what_can_be(
    changes: ExitStack, program: Program, settings: CompileSettings, level_of_calls: str
) -> List[str]:
    """Change Inductor and the program so that it is faster; return what this torch does not have."""
    optional = _Optional()
    for name, change in _OPTIONAL.items():
        optional.attempt(name, lambda change=change: changes.enter_context(change()))  # type: ignore[misc]
    module, num_threads = program.module, settings.num_threads
    lanes = optional.attempt("vector_width", lambda: use_better_vectors(module)) or _FEW_LANES
    # Other kernels round otherwise than those of ATen, which a deterministic program must not.
    if not settings.is_deterministic:
        optional.attempt(
            "convolution_kernels", lambda: use_faster_convolutions(module, num_threads=num_threads, lanes=lanes)
        )
        optional.attempt("matmul_kernels", lambda: use_faster_products(module, num_threads=num_threads))
    optional.attempt("library_build", lambda: changes.enter_context(own_library_build(level_of_calls=level_of_calls)))
    return optional.left_out


class _Optional:
    """The changes that are tried one by one: `left_out` says of each that this torch lacks a part for what is lost."""

    def __init__(self) -> None:
        self.left_out: List[str] = []

    def attempt(self, name: str, change: Callable[[], Any]) -> Any:
        """Return what `change` does; None where it is not wanted, or this torch lacks a part for it."""
        try:
            return change() if is_wanted(name) else None
        except MissingPart as error:
            self.left_out.append(str(error.finding.message))
            return None


# Without these a program may be wrong, or end its process: a torch that lacks what they change compiles nothing.
_REQUIRED: Tuple[Callable[[], ContextManager[None]], ...] = (renamed_loops, guarded_indices)
# Without these it is slower, or its sums are less exact.
_OPTIONAL: Mapping[str, Callable[[], ContextManager[None]]] = {
    "quick_checks": quick_checks,
    "repeated_values": repeated_values_once,
    "short_sums": short_sums,
    "torch_kernels": torch_kernels,
}
_FEW_LANES = 8


def _is_of_cpp_compiler(error: BaseException) -> bool:
    """Tell whether a C++ compiler refused what Inductor wrote."""
    return any(type(cause).__name__ == "CppCompileError" for cause in (error, error.__cause__, error.__context__))


def _take_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")[:300]


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
