"""Whether a program runs on IPUs with the vendor's PopTorch, or on the simulator."""

from __future__ import annotations

import importlib.util
import os

from porting.aliases import VENDOR

__all__ = ["is_simulated"]


def is_simulated(device: str) -> bool:
    """Tell whether `device` ("auto", "ipu" or "sim", see `porting.options.requested_device`) means the simulator here.

    Raises DeviceError D001 when "ipu" is asked for and there is none, OptionError P005 for an unknown value of the
    environment variable PORTING_DEVICE.
    """
    asked = device if device != "auto" else os.environ.get("PORTING_DEVICE", "").strip().lower() or "auto"
    # the usual answers need no torch, which takes seconds to load
    if asked == "sim" or (asked == "auto" and not _is_vendor_installed()):
        return True
    from porting.adapters.backends import find_backend

    return find_backend(device, simulator=lambda: None).is_simulator


def _is_vendor_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in VENDOR)
