"""Writes that a graph does in another way than torch: those that turn a shape in place, and indices into `out=`."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from ...support.function_modes import Args, Kwargs
from ...torch_insides.modes import DisableTorchDispatch
from ...torch_insides.operators import OpOverload, read_schema
from ..device_tensor import DeviceTensor
from ..operator_schema import operator_name, written_arguments
from .bodies import GraphInProgress

__all__ = ["record_write"]

aten = torch.ops.aten

# The views that operators of the other name turn their argument into, by overload.
_VIEWS: Dict[Any, Any] = {
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.swapaxes_.default: aten.swapaxes.default,
    aten.swapdims_.default: aten.swapdims.default,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
}


# Operators whose results are indices, for which the CPU wants an `out` of 64 bits.
_INDEXING = frozenset("argmax argmin argsort bucketize cummax cummin max median min nanmedian sort topk".split())


def record_write(recorder: GraphInProgress, func: OpOverload, args: Args, kwargs: Kwargs) -> Optional[Any]:
    """Record `func` if it is one of these, and return what it returns; None for all other operators."""
    view = _VIEWS.get(func)
    if view is not None:
        # the handle that is turned stands for the view of the same name from now on
        tensor: DeviceTensor = args[0]
        turned = recorder.call(view, *args, **kwargs)
        # the handle is a tensor to torch's C++ as well, which looks at its own shape and strides
        with DisableTorchDispatch(), torch.no_grad():
            aten.as_strided_.default(tensor, turned.shape, turned.stride(), turned.fake.storage_offset())
        tensor.fake, tensor.node = turned.fake, turned.node
        return tensor
    if operator_name(func) not in _INDEXING:
        return None
    outs = {
        a.name for a in read_schema(func).arguments if a.kwarg_only and a.alias_info is not None and a.name in kwargs
    }
    if not outs:
        return None
    # without `out` the indices get the device's type, and the copies take them to the type of what is given
    results = getattr(aten, operator_name(func))(*args, **{n: value for n, value in kwargs.items() if n not in outs})
    targets = written_arguments(func, args, kwargs)
    for target, value in zip(targets, [results] if isinstance(results, torch.Tensor) else results):
        recorder.call(aten.copy_.default, target, value)
    return targets[0] if len(targets) == 1 else tuple(targets)
