"""`torch.autocast` for the device that traces: torch before 2.5 or so has none for it, and says so with an error."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

import torch

from porting.diagnostics import CaptureError, caller_place

__all__ = ["autocast_answered"]


@contextmanager
def autocast_answered() -> Iterator[None]:
    """Let `torch.autocast("ipu", enabled=False)` switch off what is off anyway, while the context lasts.

    Models keep parts of themselves out of autocast, with the device of their input: `autocast(x.device.type,
    enabled=False)`. One that is to be enabled would not reach the device: CaptureError P001.

    >>> with autocast_answered(), torch.autocast("ipu", enabled=False):
    ...     torch.is_autocast_enabled()
    False
    """
    kind: Any = torch.autocast
    original = kind.__init__

    def make(self: Any, device_type: Any, dtype: Any = None, enabled: bool = True, *args: Any, **kwargs: Any) -> None:
        if device_type != "ipu":
            original(self, device_type, dtype, enabled, *args, **kwargs)
        elif enabled:
            raise CaptureError.of(
                "P001",
                message="`forward` enables `torch.autocast` for the device, which has none",
                place=caller_place(),
                help="leave it out, and choose a precision: `PortOptions(precision='mixed')`",
            )
        else:
            original(self, "cpu", enabled=False)

    kind.__init__ = make
    try:
        yield
    finally:
        kind.__init__ = original
