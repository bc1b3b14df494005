"""Operators on half numbers as a device computes them: in single precision, and each result rounded once."""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.comparison.tensors import round_at_random
from porting.structure import flatten_tensors, map_tensors
from porting.torch_insides.modes import TorchDispatchMode
from porting.torch_insides.operators import TO_COPY, OpOverload, read_schema

__all__ = ["RoundedOperators"]

# Of mixed operands these follow the first: activations in half go with statistics or weights of single precision. What
# else they return, such as the means of a normalisation, stays as it is.
_FOLLOWS_FIRST = re.compile(r"(batch|layer|group|rms)_norm|scaled_dot_product|convolution|prelu")


class RoundedOperators(TorchDispatchMode):
    """Within it operators on numbers of `dtype`, a half type, are computed in float32 and rounded once.

    Without a `generator` they are rounded to the nearest number, with one up or down at random. Operators that draw
    random numbers, that only look at their operand or are told a type of their result run as they are.
    """

    def __init__(self, dtype: torch.dtype, generator: Optional[torch.Generator] = None) -> None:
        """Change nothing yet."""
        super().__init__()
        self._dtype = dtype
        self._generator = generator

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Tuple[Any, ...] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Run `func` on wide operands, and round what would be half."""
        named = dict(kwargs or {})
        tensors = [tensor for tensor in _iter_operands(args, named) if tensor.is_floating_point()]
        target = named.get("dtype")
        if target is self._dtype and func is TO_COPY and args[0].dtype is torch.float32:
            return self._round(func(*args, **{**named, "dtype": torch.float32}))
        is_half = any(tensor.dtype is self._dtype for tensor in tensors)
        if not is_half or target is not None or _is_left_alone(func):
            return func(*args, **named)
        return self._compute_wide(func, args, named, _count_rounded(func, tensors, self._dtype))

    def _compute_wide(self, func: OpOverload, args: Tuple[Any, ...], kwargs: Dict[str, Any], num_rounded: float) -> Any:
        written = _list_written(func, args, kwargs)
        wide_args, wide_kwargs = self._widen(tuple(args)), {name: self._widen(value) for name, value in kwargs.items()}
        # the backward pass of a softmax is told its input's type
        wide_args = tuple(torch.float32 if argument is self._dtype else argument for argument in wide_args)
        result = func(*wide_args, **wide_kwargs)
        if written:
            wide_written = _list_written(func, wide_args, wide_kwargs)
            for own, wide in zip(written, wide_written):
                if own is not wide:
                    own.copy_(self._round(wide))
            originals = {id(wide): own for own, wide in zip(written, wide_written)}
            result = map_tensors(lambda tensor: originals.get(id(tensor), tensor), result)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for place, value in enumerate(results):
            is_wide = isinstance(value, torch.Tensor) and value.dtype is torch.float32
            if is_wide and place < num_rounded:
                results[place] = self._round(value)
        return type(result)(results) if isinstance(result, (tuple, list)) else results[0]

    def _widen(self, value: object) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._widen, value))
        return value.float() if isinstance(value, torch.Tensor) and value.dtype is self._dtype else value

    def _round(self, value: torch.Tensor) -> torch.Tensor:
        if self._generator is None or not value.numel():
            return value.to(self._dtype)
        return round_at_random(value, self._dtype, self._generator)


def _iter_operands(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """List an operator's tensors, which are arguments or in lists that are: this is asked of each operator of a run."""
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item


@functools.lru_cache(maxsize=None)
def _is_left_alone(func: OpOverload) -> bool:
    """Tell whether an operator computes nothing, or draws numbers, which another type would change."""
    if torch.Tag.nondeterministic_seeded in func.tags or torch.Tag.inplace_view in func.tags:
        return True
    returned = [value.alias_info for value in read_schema(func).returns]
    return any(alias is not None and not alias.is_write for alias in returned)


def _list_written(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[torch.Tensor]:
    """Return the tensors that `func` writes to."""
    found: List[torch.Tensor] = []
    # its schema does not say that it writes the running statistics
    unsaid = ("running_mean", "running_var") if func.overloadpacket is torch.ops.aten.native_batch_norm else ()
    for place, argument in enumerate(read_schema(func).arguments):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if not is_written and argument.name not in unsaid:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        found += flatten_tensors(value)
    return found


def _count_rounded(func: OpOverload, tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> float:
    """Return how many of an operator's first results are rounded to half."""
    name = func.overloadpacket.__name__
    follows = _FOLLOWS_FIRST.search(name) is not None
    if follows and tensors[0].dtype is dtype:
        return float("inf") if "backward" in name else 1
    # numbers without dimensions take the type of what they meet
    weighty = [tensor for tensor in tensors if tensor.dim()] or tensors
    return float("inf") if all(tensor.dtype is dtype for tensor in weighty) else 0
