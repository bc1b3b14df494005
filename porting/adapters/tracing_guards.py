"""Guards of a `forward` that a device traces: printing is refused, and what libraries ask torch is answered.

Torch knows nothing of a device that traces. Libraries ask it whether a graph is made before they look at values, and
torch before 2.5 or so refuses `torch.autocast` for a device that it does not know.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Iterator

import torch
from torch.overrides import TorchFunctionMode

from porting.diagnostics import CaptureError, caller_place

__all__ = ["PrintGuard", "announce_tracing", "answer_autocast"]

# `str` and f-strings come here through `__repr__` and `__format__`.
_PRINTING = frozenset([torch.Tensor.__repr__, torch.Tensor.__format__])

# Modules that get torch's own answer: torch records no TorchScript, and models of transformers that hear of tracing
# take sizes for tensors.
_UNTOLD = ("torch.", "transformers.models.")


class PrintGuard(TorchFunctionMode):
    """A context in which turning a device tensor into text raises CaptureError C010 with the user's line.

    PopTorch shows `<unavailable>` instead, once, at compile time, and the programmer looks for the fault elsewhere.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse text of device tensors and pass everything else on."""
        if func in _PRINTING and args[0].device.type == "ipu":
            raise _make_printing_error(args[0])
        return func(*args, **(kwargs or {}))


def _make_printing_error(tensor: torch.Tensor) -> CaptureError:
    return CaptureError.of(
        "C010",
        place=caller_place(),
        label="`forward` runs once, before there are values",
        notes=f"the tensor has shape {tuple(tensor.shape)} and type {tensor.dtype}",
        help="return the tensor as an output of the model, or use `poptorch.ipu_print_tensor(tensor)`",
    )


@contextmanager
def announce_tracing() -> Iterator[None]:
    """Let `torch.jit.is_tracing()` be True for all callers but torch while the context lasts.

    Libraries take a shortcut where the values of a tensor allow it: transformers leaves out an attention mask without
    padding. While a graph is made there are no values, so they must take the general path. Torch's own code gets the
    usual answer, because no TorchScript is recorded. So do the models of transformers, which would otherwise take
    sizes for tensors.

    >>> with announce_tracing():
    ...     torch.jit.is_tracing()
    True
    >>> torch.jit.is_tracing()
    False
    """
    jit: Any = torch.jit
    original = jit.is_tracing

    def is_tracing() -> bool:
        asking = str(sys._getframe(1).f_globals.get("__name__", ""))
        return bool(original()) if f"{asking}.".startswith(_UNTOLD) else True

    jit.is_tracing = is_tracing
    try:
        yield
    finally:
        jit.is_tracing = original


@contextmanager
def answer_autocast() -> Iterator[None]:
    """Accept `torch.autocast("ipu", enabled=False)`, which switches off what is off anyway, while the context lasts.

    Models keep parts of themselves out of autocast by the device of their input: `autocast(x.device.type,
    enabled=False)`. Enabling autocast would have no effect on the device: CaptureError P001.

    >>> with answer_autocast(), torch.autocast("ipu", enabled=False):
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
