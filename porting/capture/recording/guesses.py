"""Guess what a graph cannot give `forward`, while the faults of a run are collected.

A value that is read is an example; a shape that depends on values is that for ones; a tensor that was moved off the
device is the device's still. Nothing of it is ever run: a graph with guesses says what is wrong, and no more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, Optional, Protocol, Sequence, Set

import numpy as np
import torch

from ...diagnostics import Place, PortingError, are_refusals_collected, caller_place, refuse
from ...support.function_modes import Args, Kwargs
from ...torch_insides.modes import DisableTorchFunction
from ...torch_insides.operators import OpOverload
from ...torch_insides.trees import tree_map
from ..device_tensor import DeviceTensor
from ..operator_schema import operator_name
from ..shape_mode import ShapeMode
from .result_shapes import explain_failure, run_on

__all__ = ["Guesses"]

aten = torch.ops.aten

# a loop that goes on as long as a value says so has seen all kinds of values by then
_MOST_READS = 64
_FEW_READS = 8
_FAR = 1000


class _Recording(Protocol):
    """The capture that the guesses are for."""

    fake_mode: ShapeMode

    def call(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Record an operator."""


class Guesses:
    """The guesses of one capture; with `starts_false` values that are read are first what `if` takes for False."""

    def __init__(self, recorder: _Recording, *, starts_false: bool = False) -> None:
        """Begin without any."""
        self._recorder = recorder
        self._starts_false = starts_false
        self._reads: Dict[Optional[Place], int] = Counter()
        self._moved: Set[torch.fx.Node] = set()

    def read(self, tensor: DeviceTensor, name: str, error: PortingError) -> Any:
        """Refuse the read called `name` of a tensor's value with `error`, and return an example of that value.

        What a tensor holds that was moved to the host, or was computed from one, is read without another word.
        """
        if not self._was_moved(tensor.node):
            refuse(error)
        place = caller_place()
        self._reads[place] += 1
        make = _EXAMPLES.get(name)
        if make is None or self._reads[place] > _MOST_READS:
            raise error
        # the second time at one place the other way, so that a loop ends, and later on by far
        is_odd = bool(self._reads[place] % 2)
        value = int(is_odd != self._starts_false)
        if self._reads[place] > _FEW_READS:
            value = _FAR if is_odd else -_FAR
        return make(tensor, value)

    def move(self, tensor: DeviceTensor, error: PortingError) -> DeviceTensor:
        """Refuse with `error` that a tensor leaves the device, and return one that is there."""
        refuse(error)
        moved: DeviceTensor = self._recorder.call(aten.clone.default, tensor)
        self._moved.add(moved.node)
        return moved

    def make_result(self, func: OpOverload, args: Args, kwargs: Kwargs, error: PortingError) -> Any:
        """Refuse with `error` an operator whose result has no static shape, and return the result for an example.

        Raises what the operator itself does on tensors of these shapes: that is a fault of its own.
        """
        if not are_refusals_collected():
            raise (explain_failure(func, args, kwargs, error) if error.code == "C013" else error) from None
        make = _make_all_different if operator_name(func).startswith("unique") else torch.ones
        try:
            result = run_on(make, func, args, kwargs)
        except Exception:
            if error.code == "C013":
                raise
            raise error from None
        refuse(error)
        fake_mode = self._recorder.fake_mode
        return tree_map(
            lambda leaf: fake_mode.make_empty(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf,
            result,
        )

    def _was_moved(self, node: torch.fx.Node) -> bool:
        if not self._moved:
            return False
        seen: Set[torch.fx.Node] = set()
        left = [node]
        while left:
            found = left.pop()
            if found in self._moved:
                return True
            if found not in seen:
                seen.add(found)
                left.extend(found.all_input_nodes)
        return False


def _make_all_different(shape: Sequence[int], *, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(int(np.prod(shape)), device="cpu").reshape(shape).to(dtype)


def _make_number(tensor: DeviceTensor, value: int) -> Any:
    if tensor.dtype == torch.bool:
        return value > 0
    return float(value) if tensor.dtype.is_floating_point else value


def _make_array(tensor: DeviceTensor, value: int) -> Any:
    kind = {torch.bfloat16: torch.float32}.get(tensor.dtype, tensor.dtype)
    with DisableTorchFunction():
        return np.full(tuple(tensor.shape), value > 0, dtype=torch.empty(0, dtype=kind, device="cpu").numpy().dtype)


def _make_truth(_tensor: DeviceTensor, value: int) -> bool:
    return value > 0


_EXAMPLES: Dict[str, Callable[[DeviceTensor, int], Any]] = {
    "item": _make_number,
    "_local_scalar_dense": _make_number,
    "numpy": _make_array,
    "__array__": _make_array,
    "tolist": lambda tensor, value: _make_array(tensor, value).tolist(),
    "__bool__": _make_truth,
    "is_nonzero": _make_truth,
    "equal": _make_truth,
    "allclose": _make_truth,
    "__contains__": _make_truth,
    "__int__": lambda _tensor, value: value,
    # positions and lengths of 0 make empty tensors, which are faults of their own
    "__index__": lambda _tensor, _value: 1,
    "__float__": lambda _tensor, value: float(value),
    "__complex__": lambda _tensor, value: complex(value),
    "data_ptr": lambda _tensor, _value: 0,
}
