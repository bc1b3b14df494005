"""Define `ComputeMode`, the kinds of device that programs choose between, with the numbers of configurations."""

from __future__ import annotations

import enum
from typing import NamedTuple, Union

from porting.diagnostics import OptionError

__all__ = ["ComputeMode", "DeviceName"]


class DeviceName(NamedTuple):
    """A device as a string names it: its kind, and its number among those of the kind."""

    mode: ComputeMode
    number: int


class ComputeMode(enum.IntEnum):
    """The kind of device that a program computes on. The numbers are those that existing configurations store.

    >>> ComputeMode.parse("ipu:0")
    DeviceName(mode=<ComputeMode.IPU: 5>, number=0)
    """

    CPU = 0
    GPU = 1
    DPCPP = 2
    XPU = 3
    HPU = 4
    IPU = 5

    @classmethod
    def parse(cls, device: Union[str, int, ComputeMode]) -> DeviceName:
        """Read a device: a mode, its number, or `backend:index` as in "ipu:0", "cuda:1" and "native:0".

        "native" is the CPU, "cuda" the GPU; without an index it is 0. Raises OptionError P002 for anything else.
        """
        if isinstance(device, int) and not isinstance(device, bool) and device in [mode.value for mode in cls]:
            return DeviceName(cls(device), 0)
        if isinstance(device, str):
            kind, colon, index = device.strip().lower().partition(":")
            mode = _NAMES.get(kind)
            if mode is not None and (index.isdecimal() or not colon):
                return DeviceName(mode, int(index or 0))
        raise OptionError.at_caller(
            "P002",
            message=f"{device!r} names no device",
            help=f"use a name with or without a number, as in 'ipu:0'; there are {', '.join(sorted(_NAMES))}",
        )


_NAMES = {mode.name.lower(): mode for mode in ComputeMode}
_NAMES.update(native=ComputeMode.CPU, cuda=ComputeMode.GPU)
