"""Measures how far rounding alone carries a step: the last bits of every operator's result are changed at random.

This is random rounding as in stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific
computation", Math. Comput. Simul. 35, 1993): the spread of a run that is rounded otherwise at each operator estimates
what the order of sums, fused operators and other kernels may change, however deep the step is.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["RandomRounding", "change_last_bits"]

# Sums of many terms are off by several units in single precision, more in one order than in another; a half is the
# rounded result of such a sum. The change is this large, instead of what it does being multiplied, because steps are
# not linear: where the sign of a gradient is noise, Adam moves its weight by the full step or not at all.
_UNITS = {torch.float16: 2.0, torch.bfloat16: 2.0}
_UNITS_OF_LONG_TYPES = 16.0
# An error of a mean or a variance is one for all elements that share it, and no later sum takes it away.
_MADE_OF_SUMS = {
    torch.ops.aten.native_batch_norm,
    torch.ops.aten.native_batch_norm_backward,
    torch.ops.aten.native_group_norm,
    torch.ops.aten.native_group_norm_backward,
    torch.ops.aten.native_layer_norm,
    torch.ops.aten.native_layer_norm_backward,
}


class RandomRounding(TorchDispatchMode):
    """Within it every operator's new floating-point results are changed by some units in the last place.

    Whole numbers are kept: masks, counts and one-hot codes are exact however they are computed. Results that are views,
    or that an operator writes in place, are kept as well. The global random stream is not touched.
    """

    def __init__(self, seed: int = 1) -> None:
        """Start a random stream for the signs of the changes."""
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Mapping[str, Any]] = None
    ) -> Any:
        """Run `func`, or the operators that it is made of, then round its results otherwise."""
        parts = decomposition_table.get(func) if func.overloadpacket in _MADE_OF_SUMS else None
        if parts is not None:
            # Norms are taken apart, because an error of their statistics is shared by many elements; the parts are
            # rounded in here again.
            with self:
                return parts(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, (tuple, list)) else [result]
        for returned, value in zip(func._schema.returns, results):
            # a view, or what was written in place, has been rounded where it was made
            if returned.alias_info is None and isinstance(value, torch.Tensor):
                change_last_bits(value, self._generator)
        return result


def change_last_bits(value: torch.Tensor, generator: torch.Generator) -> None:
    """Change the floating-point numbers of `value`, up or down, in their last bits; not the whole ones.

    By 16 units in the last place, or 2 of a half type.
    """
    if not value.is_floating_point() or not value.numel():
        return
    # in int8, an eighth of the memory of default integers
    signs = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.int8) * 2 - 1
    relative = torch.finfo(value.dtype).eps * _UNITS.get(value.dtype, _UNITS_OF_LONG_TYPES)
    value.add_((value * signs * relative).masked_fill_(value == value.round(), 0.0))
