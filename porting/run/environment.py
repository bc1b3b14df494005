"""The environment variables with which a program, and every process that it starts, finds the simulator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, Mapping

__all__ = ["simulated_environment", "vendor_environment"]

_BOOTSTRAP = str(Path(__file__).parent / "bootstrap")
_COUNTED_AS_HARDWARE = "PORTING_SIM_HARDWARE"


def simulated_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return `environment` with the simulator under the vendor's name, counted as hardware unless that was set.

    >>> simulated_environment({"PORTING_SIM_HARDWARE": "0"})["PORTING_SIM_HARDWARE"]
    '0'
    """
    changed = vendor_environment(environment)
    changed["PYTHONPATH"] = os.pathsep.join([_BOOTSTRAP, *_folders(changed)])
    changed.setdefault(_COUNTED_AS_HARDWARE, "1")
    return changed


def vendor_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return `environment` without what an outer simulated program has added to `PYTHONPATH`."""
    changed = dict(environment)
    folders = _folders(changed)
    if _BOOTSTRAP in folders:
        changed["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder != _BOOTSTRAP)
    return changed


def _folders(environment: Mapping[str, str]) -> List[str]:
    path = environment.get("PYTHONPATH", "")
    return path.split(os.pathsep) if path else []
