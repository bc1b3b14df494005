"""A computation that is rounded at random: how far it spreads is what rounding alone may change."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

import torch

from porting.comparison.tensors import change_last_bits
from porting.torch_insides.decompositions import decomposition_table
from porting.torch_insides.modes import TorchDispatchMode
from porting.torch_insides.operators import LOG_SOFTMAX, OpOverload, read_schema

__all__ = ["RandomRounding"]

# An error of a mean or a variance is one for all elements that share it, and no later sum takes it away. And the
# logarithm of a probability near 1 is the small difference of two numbers of an ordinary size.
_MADE_OF_SUMS = {
    LOG_SOFTMAX,
    *(
        getattr(torch.ops.aten, f"native_{kind}_norm{direction}")
        for kind in ("batch", "group", "layer")
        for direction in ("", "_backward")
    ),
}

# What hands on numbers of its operands, or zeros, rounds nothing, whoever computes it. The gradient of a maximum looks
# for the elements that equal it: next to a maximum that was changed there would be none.
_EXACT = frozenset(
    f"aten::{name}"
    for name in (
        "abs adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax cat clamp clamp_max clamp_min clone "
        "constant_pad_nd cummax cummin diagonal_backward embedding flip fmax fmin fractional_max_pool2d "
        "fractional_max_pool3d gather hardtanh hardtanh_backward im2col index index_select kthvalue masked_fill "
        "masked_select max max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d maximum "
        "median min minimum mode msort nanmedian neg pixel_shuffle pixel_unshuffle reflection_pad1d "
        "reflection_pad2d reflection_pad3d relu repeat replication_pad1d replication_pad2d replication_pad3d roll "
        "select_backward select_scatter slice_backward slice_scatter sort stack take threshold threshold_backward "
        "topk tril triu upsample_nearest1d upsample_nearest2d upsample_nearest3d where"
    ).split()
)


def _takes_root(func: OpOverload, args: Tuple[Any, ...]) -> bool:
    """Tell whether it is the absolute value of complex numbers."""
    return bool(read_schema(func).name == "aten::abs" and args[0].is_complex())


class RandomRounding(TorchDispatchMode):
    """Within it every operator's new floating-point results are changed by some units in the last place.

    What is exact however it is computed is kept: whole numbers, such as masks, counts and one-hot codes, and results
    of operators that only choose or move numbers. Results that are views, or that an operator writes in place, are kept
    as well. The global random stream is not touched.

    This is random rounding as in stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific
    computation", Math. Comput. Simul. 35, 1993): how far such a run spreads estimates what the order of sums, fused
    operators and other kernels may change, however deep the step and however it magnifies.
    """

    def __init__(self, seed: int = 1, *, relative: Optional[float] = None) -> None:
        """Start a random stream for the signs of the changes; `relative` is their size in place of a type's units."""
        super().__init__()
        self._relative = relative
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Tuple[Any, ...] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Run `func`, or the operators that it is made of, then round its results otherwise."""
        parts = decomposition_table.get(func) if func.overloadpacket in _MADE_OF_SUMS else None
        if parts is not None:
            # Taken apart, because an error of the sums is shared by many elements; the parts are rounded in here again.
            with self:
                return parts(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if read_schema(func).name in _EXACT and not _takes_root(func, args):
            return result
        results = result if isinstance(result, (tuple, list)) else [result]
        for returned, value in zip(read_schema(func).returns, results):
            if returned.alias_info is None and isinstance(value, torch.Tensor):
                change_last_bits(value, self._generator, relative=self._relative)
        return result
