"""A workload given as objects, written down for the processes that measure memory and start-up."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Optional, Set, Tuple

import torch

from .workloads import Source, Workload

__all__ = ["load", "pickled_source"]


def pickled_source(workload: Workload, folder: Path) -> Tuple[Optional[Source], str]:
    """Write `workload` into `folder`; return where a process finds it, or None and why it cannot."""
    strangers = sorted(_from_main(workload))
    if strangers:
        return None, f"{', '.join(strangers)} is defined in the program itself, where other processes do not find it"
    path = folder / "workload.pt"
    try:
        torch.save(workload, path)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        return None, f"the model cannot be pickled: {error}"
    return Source("porting.bench.pickled:load", {"path": str(path)}), ""


def load(path: str, cache_dir: Optional[str] = None) -> Workload:
    """Read a workload that `pickled_source` wrote; `cache_dir` takes the place of its own folder of executables."""
    workload: Workload = torch.load(path, weights_only=False)
    if cache_dir is None:
        return workload
    return dataclasses.replace(workload, options=workload.options.replace(cache_dir=cache_dir))


def _from_main(workload: Workload) -> Set[str]:
    """Name the classes and functions of the workload that the main program defines."""
    parts = [workload.loss, workload.optimizer, *workload.model.modules()]
    owners = [part if hasattr(part, "__qualname__") else type(part) for part in parts if part is not None]
    return {owner.__qualname__ for owner in owners if getattr(owner, "__module__", "") == "__main__"}
