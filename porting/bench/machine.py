"""The machine that something was measured on, in the facts that decide about speed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from porting.support.process import usable_cores
from porting.version import VERSION

__all__ = ["describe_machine", "machine_differences", "processor_name"]

_COMPARED = ("processor", "num_cores", "system", "python", "torch", "porting", "omp_num_threads")


def describe_machine() -> Dict[str, Any]:
    """Return what this machine is and how busy it is, as plain values; None where it does not tell."""
    return {
        "processor": processor_name(),
        "num_cores": usable_cores(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
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


def processor_name() -> str:
    """Name the processor; Linux knows it better than Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_bytes() -> Optional[int]:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _version(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
