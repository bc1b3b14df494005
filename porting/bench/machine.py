"""The machine that something was measured on, in the facts that decide about speed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from typing import Any, Dict, List, Mapping

from porting.executables.machine import describe_processor
from porting.support.process import usable_cores
from porting.version import VERSION

__all__ = ["describe_machine", "machine_differences"]

_COMPARED = ("processor", "num_cores", "system", "python", "torch", "porting", "omp_num_threads")


def describe_machine() -> Dict[str, Any]:
    """Return what this machine is and how busy it is, as plain values; None where it does not tell."""
    memory_bytes = torch_version = None
    with suppress(AttributeError, OSError, ValueError):
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(importlib.metadata.PackageNotFoundError):
        torch_version = importlib.metadata.version("torch")
    return {
        "processor": describe_processor()["name"],
        "num_cores": usable_cores(),
        "memory_bytes": memory_bytes,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch_version,
        "porting": VERSION,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def machine_differences(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> List[str]:
    """Name what two machines differ in, how busy they were aside.

    >>> machine_differences({"torch": "2.0"}, {"torch": "2.13"})
    ['torch: 2.0 then, 2.13 now']
    """
    return [
        f"{key.replace('_', ' ')}: {earlier.get(key)} then, {later.get(key)} now"
        for key in _COMPARED
        if earlier.get(key) != later.get(key)
    ]
