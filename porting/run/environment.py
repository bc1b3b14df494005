"""The choice between the vendor's PopTorch and the simulator, and the environment in which a program finds it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Dict, List, Mapping

from porting.aliases import VENDOR

__all__ = ["is_simulated", "simulated_environment", "vendor_environment"]

_BOOTSTRAP = str(Path(__file__).parent / "bootstrap")
_COUNTED_AS_HARDWARE = "PORTING_SIM_HARDWARE"


def is_simulated(device: str) -> bool:
    """Tell whether `device` ("auto", "ipu" or "sim") means the simulator here; see `porting.options`.

    Raises DeviceError D001 when "ipu" is asked for and there is none, OptionError P005 for an unknown value of the
    environment variable PORTING_DEVICE.
    """
    asked = device if device != "auto" else os.environ.get("PORTING_DEVICE", "").strip().lower() or "auto"
    # the usual answers need no torch, which takes seconds to load
    if asked == "sim" or (asked == "auto" and any(importlib.util.find_spec(name) is None for name in VENDOR)):
        return True
    from porting.adapters.backends import find_backend

    return find_backend(device, simulator=lambda: None).is_simulator


def simulated_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return `environment` with the simulator under the vendor's name, counted as hardware unless that was set.

    >>> simulated_environment({"PORTING_SIM_HARDWARE": "0"})["PORTING_SIM_HARDWARE"]
    '0'
    """
    changed = vendor_environment(environment)
    changed["PYTHONPATH"] = os.pathsep.join([_BOOTSTRAP, *_list_folders(changed)])
    changed.setdefault(_COUNTED_AS_HARDWARE, "1")
    return changed


def vendor_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return `environment` without what an outer simulated program has added to `PYTHONPATH`."""
    changed = dict(environment)
    folders = _list_folders(changed)
    if _BOOTSTRAP in folders:
        changed["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder != _BOOTSTRAP)
    return changed


def _list_folders(environment: Mapping[str, str]) -> List[str]:
    path = environment.get("PYTHONPATH", "")
    return path.split(os.pathsep) if path else []
