"""Cells: each is measured in a process of its own, so that one that fails, hangs or dies stops no other."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional

from .choices import BenchSettings, Choices
from .processes import Child

__all__ = ["Cell", "run_cell"]


@dataclass(frozen=True)
class Cell:
    """One measurement: a target with choices and settings.

    `loader` and `arguments` say how a process makes the workload (see `Source`), `dataset_loader` and its arguments
    how it gets the data, if not from the batch. `demanded` is the speed-up that is asked for.
    """

    name: str
    target: str
    loader: str
    arguments: Mapping[str, Any]
    choices: Choices = field(default_factory=Choices)
    settings: BenchSettings = field(default_factory=BenchSettings)
    repeat: int = 1
    demanded: Optional[float] = None
    dataset_loader: Optional[str] = None
    dataset_arguments: Mapping[str, Any] = field(default_factory=dict)

    def record(self, status: str, *, result: Any = None, reason: str = "", seconds: float = 0.0) -> Dict[str, Any]:
        """Return the cell as it stands in a result file."""
        return {
            "name": self.name,
            "target": self.target,
            "choices": asdict(self.choices),
            "repeat": self.repeat,
            "status": status,
            "reason": reason,
            "seconds": seconds,
            "demanded": self.demanded,
            "result": result,
        }


def run_cell(
    cell: Cell,
    *,
    cache_dir: Optional[str],
    timeout: Optional[float],
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Dict[str, Any]:
    """Measure a cell in a process and return its record; whatever becomes of the process, there is one.

    Without `cache_dir`, executables go to a folder that is deleted afterwards: compiling is measured cold. `timeout` is
    in seconds. An interrupt (Ctrl-C) ends the process and is passed on.
    """
    task = {
        "source": {"loader": cell.loader, "arguments": {**cell.arguments, "cache_dir": cache_dir}},
        "dataset": [cell.dataset_loader, dict(cell.dataset_arguments)] if cell.dataset_loader else None,
        "settings": cell.settings.to_dict(),
    }
    start = time.perf_counter()
    with Child("cell", task, leads_group=True) as child:
        in_time = child.wait(timeout, progress)
        child.end()
        seconds = time.perf_counter() - start
        if not in_time:
            return cell.record("timeout", reason=f"it ran longer than {timeout:.0f} s", seconds=seconds)
        status, reason, result = child.outcome()
        return cell.record(status, result=result, reason=reason, seconds=seconds)
