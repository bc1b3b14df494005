"""A process that measures one thing of itself: `python -m porting.bench.child TASK RESULT`, both JSON files.

It loads as little as it can, because what it loads counts. The job "turns" has no RESULT: it says "ready", and answers
each line of its standard input, a number of calls, by a line of its standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

__all__ = ["main"]

_NUM_MEMORY_CALLS = 6
_NUM_WARM_UP_CALLS = 5


def main(task_path: str, result_path: str) -> None:
    """Do the task and write its result."""
    # torch is what both sides need in any case; what comes on top of it is looked at apart
    import torch

    task = json.loads(Path(task_path).read_text(encoding="utf-8"))
    if task["settings"]["threads"] is not None:
        torch.set_num_threads(task["settings"]["threads"])
    if task["job"] == "turns":
        _take_turns(task)
        return
    jobs: Dict[str, Callable[[Any], Dict[str, Any]]] = {"memory": _measure_memory, "start-up": _measure_start_up}
    result = jobs[task["job"]](task)
    # a moment's notice for whoever waits: all of it, or nothing
    unfinished = Path(f"{result_path}.unfinished")
    unfinished.write_text(json.dumps(result), encoding="utf-8")
    unfinished.replace(result_path)


def _take_turns(task: Any) -> None:
    """Answer until nobody asks any more; what the user's own code prints goes elsewhere."""
    from porting.bench.turns import time_calls

    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        call = _make_side(task, _harness(task))
        time_calls(call, _NUM_WARM_UP_CALLS)
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            turn = time_calls(call, int(line))
            print(json.dumps(turn._asdict()), file=answers, flush=True)


def _measure_start_up(task: Any) -> Dict[str, Any]:
    """Train one step; of a plain program's time the making of this very harness is left out."""
    before_harness = _cpu_seconds()
    source = _harness(task)
    harness = _cpu_seconds() - before_harness if task["side"] == "eager" else 0.0
    _make_side(task, source)()
    return {"cpu_seconds": _cpu_seconds() - harness, "wall_seconds": time.time() - task["started"]}


def _measure_memory(task: Any) -> Dict[str, Any]:
    """Train some steps, and compare the peak with what there was when everything had been imported."""
    source = _harness(task)
    if task["side"] == "ported":
        import porting.bench.ported  # noqa: F401 - imported so that it counts among what was there before
        import porting.simulator  # noqa: F401
    before = _reset_peak()
    call = _make_side(task, source)
    for _call in range(_NUM_MEMORY_CALLS):
        call()
    peak = _peak_bytes()
    own = None if peak is None or before is None else max(0, peak - before)
    return {"peak_bytes": own, "process_peak_bytes": peak}


def _harness(task: Any) -> Any:
    """Load what measures and what makes the workload, but nothing of the user's yet."""
    from porting.bench.workloads import Source, load_by_name

    source = Source(**task["source"])
    for needed in ("porting.bench.eager:EagerSide", source.loader):
        load_by_name(needed)
    return source


def _make_side(task: Any, source: Any) -> Callable[[], Any]:
    """Load the workload and get its side ready, compiled if it is the ported one."""
    settings = task["settings"]
    workload = source.load(settings["seed"])
    if task["side"] == "eager":
        from porting.bench.eager import EagerSide

        eager = EagerSide(
            workload, memory_format=settings["eager_memory_format"], precision=settings["eager_precision"]
        )
        return eager.call
    from porting.bench.ported import PortedSide

    ported = PortedSide(workload, device=settings["device"])
    ported.compile()
    return ported.call


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _reset_peak() -> Optional[int]:
    """Forget the peak up to now, where the system can do that, and return the memory in use."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return _peak_bytes()
    return _peak_bytes()


def _peak_bytes() -> Optional[int]:
    """Return the peak of this process: Linux tells that of this program alone, and not of the one that started it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    # bytes on macOS, kilobytes elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
