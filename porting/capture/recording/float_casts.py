"""The casts around operators that the device's floating-point types call for, as the recorder writes them down.

Half and single precision may meet in an operator; under autocast the operator chooses its type; and where plain torch
refuses to mix types the device computes in the wider one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple

import torch

from ...support.function_modes import Args, Kwargs
from ...torch_insides.operators import OpOverload
from ...torch_insides.trees import tree_map
from ..autocast import autocast_targets, autocast_types
from ..device_tensor import DeviceTensor
from ..dtypes import device_dtype, float_cast_targets, rounded_result
from ..errors import Refusal
from ..operator_schema import device_tensors, map_leaves, written_arguments
from .bodies import Bodies, GraphInProgress
from .reports import Reports
from .tensor_facts import TensorFacts

__all__ = ["FloatCasts"]

aten = torch.ops.aten

_HALVES = frozenset([torch.float16, torch.bfloat16])


class _OperatorRecorder(GraphInProgress, Protocol):
    """Where operators are recorded, with what is known of their tensors."""

    facts: TensorFacts
    bodies: Bodies
    reports: Reports

    def record_as_is(self, func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Record an operator on arguments that have the types it is to get."""


class FloatCasts:
    """The casts of one capture by `recorder`; `autocast` is the type that `forward` runs under, None without.

    Inside the graph a type that autocast uses is a type of the device.
    """

    def __init__(self, recorder: _OperatorRecorder, autocast: Optional[torch.dtype]) -> None:
        self.autocast = autocast
        self._recorder = recorder
        self._lower: Optional[torch.dtype] = None
        self._lowered: Dict[Tuple[torch.fx.Node, bool], DeviceTensor] = {}

    def dtype_of(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type that a tensor asked for with `dtype` gets inside the graph."""
        return dtype if dtype == self.autocast else device_dtype(dtype)

    @contextmanager
    def in_place_of_autocast(self) -> Iterator[None]:
        """Switch torch's autocast off and do in its place what this capture wants of it: cast here, or nothing."""
        asked = autocast_types()
        if self.autocast is None or any(dtype != self.autocast for dtype in asked):
            self._recorder.reports.refuse(Refusal.AUTOCAST.error())
        self._lower = self.autocast if asked else None
        try:
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                yield
        finally:
            self._lower = None

    def record(self, func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Record `func` with the casts around it that its arguments call for."""
        tensors = device_tensors((args, kwargs))
        if self._lower is None and not any(tensor.dtype in _HALVES for tensor in tensors):
            return self._recorder.record_as_is(func, args, kwargs)  # single precision alone needs no casts
        targets = None
        if self._lower is not None:
            targets = autocast_targets(func, [tensor.dtype for tensor in tensors], self._lower)
        if targets is None:
            targets = float_cast_targets(func, tensors, list(map(self._recorder.facts.is_parameter, tensors)))
        if all(tensor.dtype == target for tensor, target in zip(tensors, targets)):
            return self._recorder.record_as_is(func, args, kwargs)
        by_id = dict(zip(map(id, tensors), targets))
        cast_args, cast_kwargs, casts = self._cast_arguments(args, kwargs, lambda tensor: by_id[id(tensor)])
        result = self._recorder.record_as_is(func, cast_args, cast_kwargs)
        # an in-place operator has worked on a cast copy: bring the result back to the tensor that was meant
        for written in device_tensors(written_arguments(func, args, kwargs)):
            if id(written) in casts:
                self._recorder.call(aten.copy_.default, written, casts[id(written)])
        rounded = rounded_result(func, tensors)
        if rounded is None:
            return result
        return tree_map(lambda leaf: self._record_cast(leaf, rounded) if _is_float(leaf) else leaf, result)

    def promote(self, func: OpOverload, args: Args, kwargs: Kwargs) -> Optional[Tuple[Any, Any]]:
        """Cast mixed operands to what is written to, or else to float32, where plain torch refuses to mix."""
        tensors = device_tensors((args, kwargs))
        if len({tensor.dtype for tensor in tensors if _is_float(tensor)}) < 2:
            return None
        # a tensor that is written to keeps its type
        written = [tensor.dtype for tensor in device_tensors(written_arguments(func, args, kwargs))]
        target = written[0] if written else torch.float32
        return self._cast_arguments(args, kwargs, lambda tensor: target if _is_float(tensor) else tensor.dtype)[:2]

    def without_lower(self, args: Args, kwargs: Kwargs) -> Tuple[Any, Any]:
        """Give operators of a backend's own library, which know nothing of autocast, float32."""
        if self.autocast is None:
            return args, kwargs
        return self._cast_arguments(args, kwargs, lambda t: torch.float32 if t.dtype == self.autocast else t.dtype)[:2]

    def as_types_of(self, tensors: Sequence[DeviceTensor], patterns: Sequence[torch.Tensor]) -> List[DeviceTensor]:
        """Give `tensors` the types of `patterns` where only autocast has made others of them; else leave them."""
        if self.autocast is None or len(tensors) != len(patterns):
            return list(tensors)
        own = (self.autocast, torch.float32)
        return [
            self._record_cast(tensor, pattern.dtype) if tensor.dtype in own and pattern.dtype in own else tensor
            for tensor, pattern in zip(tensors, patterns)
        ]

    def _cast_arguments(
        self, args: Args, kwargs: Kwargs, find_target: Callable[[DeviceTensor], torch.dtype]
    ) -> Tuple[Any, Any, Dict[int, DeviceTensor]]:
        casts: Dict[int, DeviceTensor] = {}

        def cast(leaf: object) -> Any:
            if not isinstance(leaf, DeviceTensor) or find_target(leaf) == leaf.dtype:
                return leaf
            # an argument that is given twice stays one tensor
            if id(leaf) not in casts:
                casts[id(leaf)] = self._cast_once(leaf, find_target(leaf))
            return casts[id(leaf)]

        args, kwargs = map_leaves(cast, (args, kwargs))
        return args, kwargs, casts

    def _cast_once(self, tensor: DeviceTensor, target: torch.dtype) -> Any:
        """Cast a weight to the lower precision once for all its uses, as long as nothing writes to it."""
        recorder = self._recorder
        # what a body computes does not exist outside of it
        is_reused = target == self._lower and tensor.node.op == "placeholder" and not recorder.bodies.kinds
        if not is_reused or recorder.facts.was_written(tensor):
            return self._record_cast(tensor, target)
        # a cast under `no_grad` leads no gradient back
        key = (tensor.node, torch.is_grad_enabled())
        if key not in self._lowered:
            self._lowered[key] = self._record_cast(tensor, target)
        return self._lowered[key]

    def _record_cast(self, tensor: DeviceTensor, dtype: torch.dtype) -> Any:
        return self._recorder.call(aten.to.dtype, tensor, dtype)


def _is_float(leaf: object) -> bool:
    return isinstance(leaf, DeviceTensor) and leaf.dtype.is_floating_point
