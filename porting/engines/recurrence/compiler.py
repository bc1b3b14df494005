"""Compiling the time loops for this processor: what the engine `recurrence` does in a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import List

from ..compiled.compile_settings import CompileSettings, choose_cpp_compiler

__all__ = ["LIBRARY", "SOURCE", "compile_here"]

SOURCE = Path(__file__).with_name("kernels.cpp")
"""The loops as they are written."""

LIBRARY = "loops.so"
"""The loops as a library."""


def compile_here(source: Path, folder: Path, *, settings: CompileSettings) -> None:
    """Compile the loops into `folder`, the same ones for all settings; RuntimeError with what the compiler said."""
    del settings
    compiler = choose_cpp_compiler()
    command = [*compiler, "-std=c++17", "-O3", *_name_processor(), "-fno-math-errno", "-fno-trapping-math"]
    # Others bring threads of their own, beside torch's; without threads the loops are right as well.
    if sys.platform == "linux" and "clang" not in compiler[0]:
        command.append("-fopenmp")
    command += ["-Wno-psabi", "-shared", "-fPIC", str(source), "-o", str(folder / LIBRARY)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace") or f"`{command[0]}` ended with {done.returncode}")


def _name_processor() -> List[str]:
    """Return the flag for all instructions of this processor."""
    return ["-march=native" if platform.machine().lower() in ("x86_64", "amd64") else "-mcpu=native"]
