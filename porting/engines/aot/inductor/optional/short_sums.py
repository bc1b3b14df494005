"""Sums and variances in compiled C++ code that are about as exact as those of eager PyTorch.

Inductor adds up to 4,096 numbers one after the other before it begins another partial sum. The gradient of a
BatchNorm's bias in a ConvMixer is then 2e-5 away from float64, where eager's pairwise sums are 3e-7 away, and the
layers below multiply that. Partial sums of 128 numbers bring the distance down to eager's, at the price of one
comparison per vector. Shorter sums keep their plain loop, because each helper allocates memory.

Variances are of sums as well (`moments.h`): more exact than Inductor's, and in half to a third of the time.

Without this a program is less exact and slower, not wrong: parity decides whether it is used.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Callable, Iterator

import torch

from .....torch_insides.exchanged import exchanged
from .....torch_insides.inductor import SUMS, CppKernel, KernelGroup
from ..unwanted import is_wanted
from ..written_code import add_to_header, require_once

__all__ = ["short_sums"]

# how many numbers, or vectors of them, are added one after the other
CHUNK = 128
# sums of at most so many numbers have one chunk only
LONGEST_PLAIN_SUM = 1024

_HELPER = "CascadeSumHelper<"
_INDUCTORS_CHUNK = ", 4096>"
# a variable of a function, static where there is one chunk only
_VARIANCE = re.compile(r"^(?:static )?WelfordHelper<(.*), 4096> (\w+\(.*\);)$")
_MOMENTS = "porting_moments::Moments<"


_LOSS = "sums of compiled steps are less exact than those of eager PyTorch"


@contextmanager
def short_sums() -> Iterator[None]:
    """Make Inductor write short partial sums while the context lasts; MissingPart for a torch without the functions."""
    SUMS.require()
    with exchanged(CppKernel, "need_use_acc_helper", _ask_for_helper), exchanged(
        CppKernel, "_acc_helper_init", _shorten_chunks
    ), exchanged(KernelGroup, "codegen_group", _include_moments):
        yield


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
    def acc_helper_init(self: object, *args: Any, **kwargs: Any) -> str:
        line = original(self, *args, **kwargs)
        variance = _VARIANCE.match(line)
        if variance is not None:
            return f"{_MOMENTS}{variance[1]}> {variance[2]}" if is_wanted("moments") else line
        for expected in (_HELPER, _INDUCTORS_CHUNK):
            require_once(expected, line, loses=_LOSS)
        return line.replace(_INDUCTORS_CHUNK, f", {CHUNK}>")

    return acc_helper_init


def _include_moments(original: Callable[..., str]) -> Callable[..., str]:
    def codegen_group(self: object, name: object = None) -> str:
        code = original(self, name)
        if _MOMENTS not in code:
            return code
        return add_to_header(code, Path(__file__).with_name("moments.h").read_text(encoding="utf-8"), loses=_LOSS)

    return codegen_group
