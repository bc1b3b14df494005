"""The values of the device while it traces: those a substitute is for."""

from __future__ import annotations

from porting.structure import flatten_tensors

__all__ = ["is_on_device"]


def is_on_device(value: object) -> bool:
    """Tell whether there is a tensor of the device in `value`, which may be nested.

    >>> is_on_device(([1.0], {"x": None}))
    False
    """
    return any(tensor.device.type == "ipu" for tensor in flatten_tensors(value))
