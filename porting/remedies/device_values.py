"""Tell values of the device, which remedies and substitutes are for, from those of the host.

`Remedies` asks before it lets a substitute compute.
"""

from __future__ import annotations

from porting.structure import flatten_tensors

__all__ = ["is_on_device"]


def is_on_device(value: object) -> bool:
    """Tell whether there is a tensor of the device in `value`, which may be nested.

    >>> is_on_device(([1.0], {"x": None}))
    False
    """
    return any(tensor.device.type == "ipu" for tensor in flatten_tensors(value))
