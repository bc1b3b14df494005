"""Compiling the time loops for this processor, in a process of its own: what the engine `recurrence` does there."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import List

import torch

from ..aot.matmul_kernels import Product, is_faster_by_onednn
from ..compiled.compile_settings import CompileSettings

__all__ = ["LIBRARY", "PRODUCTS", "compile_here", "compile_loops", "read_products", "write_products"]

_SOURCE = Path(__file__).with_name("kernels.cpp")

LIBRARY = "loops.so"
"""The loops as a library."""

PRODUCTS = "products.json"
"""The products that oneDNN is faster for; in the job of a compilation all that are to be measured."""


def compile_here(program_file: Path, folder: Path, *, settings: CompileSettings) -> None:
    """Compile the loops into `folder`, and measure for the products in `program_file` who multiplies them.

    Raises RuntimeError with what the compiler said.
    """
    compile_loops(folder)
    chosen: List[Product] = []
    # Products by oneDNN round otherwise than those of ATen, which a deterministic step must not.
    if torch.backends.mkldnn.is_available() and not settings.is_deterministic:
        torch.set_num_threads(settings.num_threads)
        chosen = [product for product in read_products(program_file) if is_faster_by_onednn(product)]
    write_products(chosen, folder / PRODUCTS)


def compile_loops(folder: Path) -> None:
    """Compile the loops into `folder`; RuntimeError with what the compiler said."""
    compiler = _find_compiler()
    command = [*compiler, "-std=c++17", "-O3", *_name_processor(), "-fno-math-errno", "-fno-trapping-math"]
    # Others bring threads of their own, beside torch's; without threads the loops are right as well.
    if sys.platform == "linux" and "clang" not in compiler[0]:
        command.append("-fopenmp")
    command += ["-Wno-psabi", "-shared", "-fPIC", str(_SOURCE), "-o", str(folder / LIBRARY)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace") or f"`{command[0]}` ended with {done.returncode}")


def write_products(products: List[Product], file: Path) -> None:
    """Write a list of products."""
    file.write_text(json.dumps(products), encoding="utf-8")


def read_products(file: Path) -> List[Product]:
    """Read a list of products."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return [Product(tuple(one), tuple(two), tuple(three), tuple(four), bias) for one, two, three, four, bias in found]


def _find_compiler() -> List[str]:
    given = shlex.split(os.environ.get("CXX", "").strip())
    return given or ["clang++" if sys.platform == "darwin" else "g++"]


def _name_processor() -> List[str]:
    """Return the flag for all instructions of this processor."""
    return ["-march=native" if platform.machine().lower() in ("x86_64", "amd64") else "-mcpu=native"]
