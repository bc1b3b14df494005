"""Sums and variances in compiled C++ code that are about as exact as those of eager PyTorch.

Inductor adds up to 4,096 numbers one after the other before it begins another partial sum. The gradient of a
BatchNorm's bias in a ConvMixer is then 2e-5 away from float64, where eager's pairwise sums are 3e-7 away, and the
layers below multiply that. Partial sums of 128 numbers bring the distance down to eager's, at the price of one
comparison per vector. Shorter sums keep their plain loop, because each helper allocates memory.

Variances are of sums as well (`moments.h`): more exact than Inductor's, and in half to a third of the time.

This changes functions of Inductor in the process that compiles, which does nothing else. A torch whose functions look
different is refused: `install_short_sums` raises.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any, Callable

import torch
from torch._inductor.codegen.cpp import CppKernel, KernelGroup

from .inductor_changes import add_to_header, wrap_function

__all__ = ["install_short_sums"]

# how many numbers, or vectors of them, are added one after the other
CHUNK = 128
# sums of at most so many numbers have one chunk only
LONGEST_PLAIN_SUM = 1024

_HELPER = "CascadeSumHelper<"
_INDUCTORS_CHUNK = ", 4096>"
# a variable of a function, static where there is one chunk only
_VARIANCE = re.compile(r"^(?:static )?WelfordHelper<(.*), 4096> (\w+\(.*\);)$")
_MOMENTS = "porting_moments::Moments<"


def install_short_sums() -> None:
    """Make Inductor write short partial sums from now on; RuntimeError for a torch where this is not known to work."""
    wrap_function(CppKernel, "need_use_acc_helper", _ask_for_helper)
    wrap_function(CppKernel, "_acc_helper_init", _shorten_chunks)
    wrap_function(KernelGroup, "codegen_group", _include_moments)


def _ask_for_helper(original: Callable[..., bool]) -> Callable[..., bool]:
    def need_use_acc_helper(self: Any, reduction_type: str, dtype: torch.dtype, use_scalar: bool) -> bool:
        if original(self, reduction_type, dtype, use_scalar):
            return True
        if reduction_type != "sum" or dtype != torch.float32:
            return False
        # A size that is no number yet has been answered by Inductor itself.
        size = prod(self.call_ranges[self.reduction_depth :])
        return bool(getattr(size, "is_number", True)) and int(size) > LONGEST_PLAIN_SUM

    return need_use_acc_helper


def _shorten_chunks(original: Callable[..., str]) -> Callable[..., str]:
    def acc_helper_init(self: Any, *args: Any, **kwargs: Any) -> str:
        line = original(self, *args, **kwargs)
        variance = _VARIANCE.match(line)
        if variance is not None:
            return f"{_MOMENTS}{variance[1]}> {variance[2]}"
        if line.count(_HELPER) != 1 or line.count(_INDUCTORS_CHUNK) != 1:
            raise RuntimeError(f"the Inductor of torch {torch.__version__} writes sums in another form")
        return line.replace(_INDUCTORS_CHUNK, f", {CHUNK}>")

    return acc_helper_init


def _include_moments(original: Callable[..., str]) -> Callable[..., str]:
    def codegen_group(self: Any, name: Any = None) -> str:
        code = original(self, name)
        if _MOMENTS not in code:
            return code
        return add_to_header(code, Path(__file__).with_name("moments.h").read_text(encoding="utf-8"))

    return codegen_group
