"""Shapes of results found by running an operator on small tensors of zeros, which needs no rules and no compiler."""

from __future__ import annotations

import re
import warnings
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

import torch

from ..support.compiler_loading import is_compiler_loaded, load_compiler_late
from ..support.function_modes import Args, Kwargs
from ..torch_insides.modes import DisableTorchFunction, TorchDispatchMode
from ..torch_insides.operators import OpOverload
from .operator_schema import declared_written_arguments, list_leaves, map_leaves
from .plain_shapes import UnknownShape, expect, is_mask

__all__ = ["try_operator"]

# Torch's rules take about as long as a run on so many numbers.
_FEW_NUMBERS = 1 << 18
# Before torch's rules can be asked, its compiler has to be loaded: most of a second, and 60 MiB. A run of an ordinary
# operator on so many numbers takes less, and no longer than the first step will take for it.
_MOST_NUMBERS = 1 << 22
# These take more than a few operations for each number, or make many numbers of one.
_COSTLY = re.compile(
    "linalg_(?!vector_norm)|cholesky|geqrf|or[gm]qr|lu_solve|triangular_solve|lstsq|cdist|repeat|tile|kron|im2col"
)

_NEEDS_VALUES: FrozenSet[Any] = frozenset(
    [torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded]
)


class _NoValues(TorchDispatchMode):
    """Raises `UnknownShape` at an operator that looks at values, draws random numbers, or is costly and `is_large`."""

    def __init__(self, is_large: bool) -> None:
        super().__init__()
        self._is_large = is_large

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        """Run one operator unless zeros would mislead."""
        # only a mask has as many results as its values say
        is_known = func is torch.ops.aten.index.Tensor and not any(map(is_mask, args[1]))
        expect(is_known or _NEEDS_VALUES.isdisjoint(func.tags))
        expect(not self._is_large or _COSTLY.search(func.name()) is None)
        return func(*args, **(kwargs or {}))


load_compiler_late(_NoValues.__dict__["__torch_dispatch__"])


def try_operator(operator: Any, args: Sequence[Any], kwargs: Kwargs) -> Any:
    """Return what `operator` makes of tensors laid out as the meta tensors among its arguments, as meta tensors.

    Views share the memory of what they show, and what hands an argument back hands back that object. Raises
    UnknownShape where zeros do not tell: for writes, large tensors, and operators that look at values. Errors of the
    operator come through, also those about values, such as a division by zero.
    """
    plain = [leaf for leaf in list_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    expect(operator.namespace == "aten" and not declared_written_arguments(operator, tuple(args), kwargs))
    # views of nothing share no memory that could be found again
    expect(bool(plain) and all(tensor.layout == torch.strided and tensor.numel() > 0 for tensor in plain))
    num_numbers = sum(map(_count_numbers, plain))
    is_large = num_numbers > _FEW_NUMBERS
    expect(not is_large or (num_numbers <= _MOST_NUMBERS and not is_compiler_loaded()))
    made: Dict[int, torch.Tensor] = {id(tensor): _make_zeros(tensor) for tensor in plain}
    given_args, given_kwargs = map_leaves(lambda leaf: made.get(id(leaf), leaf), (list(args), kwargs))
    with _NoValues(is_large):
        result = _call_without_warnings(lambda: operator(*given_args, **given_kwargs))
    return _describe_results(result, [(made[id(tensor)], tensor) for tensor in plain])


def _call_without_warnings(call: Callable[[], Any]) -> Any:
    """Return what `call` returns; what torch warns of meanwhile is left for the run of the user's values to say.

    Torch keeps warnings until the outermost of its own methods ends, that of the user's line, and gives them to Python
    there. `apply_`, which calls a function of Python, is such a method too, and ends here.
    """
    results = []

    def keep_result(_number: float) -> float:
        results.append(call())
        return 0.0

    is_always = torch.is_warn_always_enabled()
    with warnings.catch_warnings(), DisableTorchFunction():
        warnings.simplefilter("ignore")
        torch.set_warn_always(True)  # otherwise what is said once in a process is said here
        try:
            torch.zeros(()).apply_(keep_result)
        finally:
            torch.set_warn_always(is_always)
    return results[0]


def _count_numbers(tensor: torch.Tensor) -> int:
    """Count the numbers in memory from the first of `tensor` to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def _make_zeros(tensor: torch.Tensor) -> torch.Tensor:
    # expanded tensors cannot be filled, what lies behind them can
    return torch.zeros(_count_numbers(tensor), dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


def _describe_results(result: object, given: List[Tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(result, (tuple, list)):
        items = [_describe_results(item, given) for item in result]
        return items if isinstance(result, list) else tuple(items)
    if not isinstance(result, torch.Tensor) or result.layout != torch.strided or result.numel() == 0:
        raise UnknownShape
    # such a view shows other numbers than lie in memory
    expect(not result.is_conj() and not result.is_neg())
    for zeros, plain in given:
        if result is zeros:
            return plain
        if result.untyped_storage().data_ptr() == zeros.untyped_storage().data_ptr():
            expect(result.dtype == zeros.dtype)
            offset = int(plain.storage_offset()) + int(result.storage_offset())
            return plain.as_strided(result.shape, result.stride(), offset)
    return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
