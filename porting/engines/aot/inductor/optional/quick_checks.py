"""Inductor asks the C++ compiler's flags what it would compile tests for, and writes no checks of arguments.

The tests of each instruction set cost 7 seconds; the checks, which `LoadedLibrary` does, grow with the parameters.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import Any, Iterator

from .....torch_insides.exchanged import exchanged
from .....torch_insides.inductor import QUICK_CHECKS, CppWrapperCpu, VecISA, get_cpp_compiler

__all__ = ["quick_checks"]

_NO_CHECKS = """
static inline bool _check_aoti_runtime_check_inputs_env() { return false; }
static inline void __check_inputs_outputs(AtenTensorHandle*, AtenTensorHandle*) {}
"""


@contextmanager
def quick_checks() -> Iterator[None]:
    """Do so while the context lasts; MissingPart for a torch without the functions."""
    QUICK_CHECKS.require()
    with exchanged(VecISA, "check_build", lambda _original: _knows_instructions), exchanged(
        CppWrapperCpu, "generate_input_output_runtime_checks", lambda _original: _write_no_checks
    ):
        yield


def _write_no_checks(wrapper: Any) -> None:
    wrapper.prefix.splice_aot(_NO_CHECKS)


def _knows_instructions(isa: Any, _code: str) -> bool:
    """Ask the C++ compiler whether it knows the flags of an instruction set, which torch says the processor has."""
    command = [get_cpp_compiler(), *isa.build_arch_flags().split(), "-x", "c++", "-E", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
