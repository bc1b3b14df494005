"""The width of a program's vectors, on a processor that has vectors of 16 numbers and of 8.

Images whose channels lie innermost have loops of as many numbers as channels, and what a vector does not hold is
computed number by number. With 8 channels, or 24, most of the work is such a rest for vectors of 16, and none for
vectors of 8: a UNet that begins with 8 channels lost a tenth of its speed to it.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .....torch_insides.inductor import VECTORS, config, pick_vec_isa

__all__ = ["count_loop_steps", "has_wide_vectors", "use_better_vectors"]

_WIDE, _NARROW = 16, 8
_BITS = 32  # of a number


def use_better_vectors(module: torch.fx.GraphModule) -> int:
    """Let Inductor, in this process, compile `module` with the vectors that suit it; return how many numbers they have.

    Nodes of the module need values (`meta["val"]`). 8 is also returned for a processor that has shorter ones.
    MissingPart for a torch that does not let the width be chosen.
    """
    VECTORS.require()
    if pick_vec_isa().bit_width() < _BITS * _WIDE:
        return _NARROW
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "call_function"]
    wide, narrow = (sum(count_loop_steps(value, width) for value in values) for width in (_WIDE, _NARROW))
    if wide <= narrow:
        return _WIDE
    config.cpp.simdlen = _BITS * _NARROW
    return _NARROW


def has_wide_vectors() -> bool:
    """Tell whether torch uses AVX-512 on this processor, where its user has not forbidden that."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def count_loop_steps(value: object, width: int) -> float:
    """Return how many vectors of `width` numbers, and single numbers, a loop over a float tensor has; 0 for others.

    >>> count_loop_steps(torch.empty(1, 4, 4, 24).permute(0, 3, 1, 2), 16)  # 16 pixels of a vector and 8 numbers
    144.0
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    length, count = _find_innermost(value)
    return count * float(length // width + length % width)


def _find_innermost(value: torch.Tensor) -> Tuple[int, int]:
    """Return how many numbers lie side by side, and how many such rows there are."""
    is_image = value.dim() == 4 and not value.is_contiguous()
    length = value.shape[1] if is_image and value.is_contiguous(memory_format=torch.channels_last) else value.numel()
    return length, value.numel() // length
