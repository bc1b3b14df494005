"""These are the jobs that run in a process of their own: a whole case, or one measurement of one side.

`porting.bench.processes` starts the processes. Imports stand in the functions, because what the processes of start-up
and memory load is measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping

if TYPE_CHECKING:
    from porting.bench.workloads import Workload

__all__ = ["do_job"]

Task = Mapping[str, Any]
"""What a job is told, plain values."""

_NUM_WARM_UP_CALLS = 5


def do_job(task: Task, folder: Path) -> Any:
    """Do the job of a task and return its result, plain values; `folder` is that of the process."""
    jobs: Mapping[str, Callable[[Task, Path], Any]] = {
        "case": _measure_case,
        "memory": _measure_memory,
        "layouts": _count_layout_copies,
        "start-up": _measure_start_up,
        "curve": _take_calls,
        "turns": _take_turns,
    }
    return jobs[task["job"]](task, folder)


# -- a case ------------------------------------------------------------------------------------------------------------


def _measure_case(task: Task, folder: Path) -> Dict[str, Any]:
    from porting.bench.choices import BenchSettings
    from porting.bench.measure import measure
    from porting.bench.workloads import Source, load_by_name

    def progress(text: str, share: float) -> None:
        (folder / "progress").write_text(f"{share} {text}", encoding="utf-8")

    progress("loading", 0.0)
    settings = BenchSettings(**task["settings"])
    source = Source(**task["source"])
    if source.arguments["cache_dir"] is None:
        # it goes with the folder: compiling is measured cold
        source = source.with_cache(str(folder / "cache"))
    workload = source.load(settings.seed)
    dataset = None
    if task["dataset"] is not None:
        loader, arguments = task["dataset"]
        dataset = load_by_name(loader)(**arguments)
    report = measure(workload, settings=settings, source=source, dataset=dataset, progress=progress)
    return report.to_dict()


# -- one side ----------------------------------------------------------------------------------------------------------


def _take_turns(task: Task, _folder: Path) -> None:
    """Say "ready" and answer each number of calls by a turn, until nobody asks any more."""
    _load_torch(task)
    from multiprocessing.connection import Connection

    from porting.bench.turns import time_calls

    call = _make_compiled_call(task, _load_harness(task).load(task["settings"]["seed"]))
    time_calls(call, _NUM_WARM_UP_CALLS)
    with Connection(task["answers"]) as answers:
        answers.send("ready")
        with contextlib.suppress(EOFError):
            while True:
                answers.send(time_calls(call, answers.recv()))


def _measure_start_up(task: Task, _folder: Path) -> Dict[str, Any]:
    """Take one step; of a plain program's time the making of this very harness is left out."""
    from porting.support.process import used_cpu_seconds

    _load_torch(task)
    torch_cpu = used_cpu_seconds()
    source = _load_harness(task)
    import_cpu = used_cpu_seconds() - torch_cpu
    workload = source.load(task["settings"]["seed"])
    first_cpu = used_cpu_seconds()
    returned = _make_compiled_call(task, workload)()
    end_cpu = used_cpu_seconds()
    harness_cpu = import_cpu if task["side"] == "eager" else 0.0
    # losses, or the outputs of inference
    values = returned if isinstance(returned, list) else [returned]
    return {
        "cpu_seconds": end_cpu - harness_cpu,
        "wall_seconds": time.time() - task["started"],
        "torch_cpu_seconds": torch_cpu,
        "import_cpu_seconds": import_cpu,
        "first_step_cpu_seconds": end_cpu - first_cpu,
        "loss": sum(float(value.double().mean()) for value in values) / len(values),
        "loads_compiler": "torch._dynamo" in sys.modules,
    }


def _measure_memory(task: Task, _folder: Path) -> Dict[str, Any]:
    """Take some steps, and compare the peak with what there was before: with all imports, the model and the data.

    With `tensors` in the task, count what torch's allocator has given instead, which says nothing of the process.
    """
    from porting.bench.peaks import find_own_peak, find_tensor_peak

    _load_torch(task)
    source = _load_harness(task)
    _import_ahead(task)

    def load() -> Any:
        return source.load(task["settings"]["seed"])

    def train(workload: Workload) -> None:
        call = _make_compiled_call(task, workload, copies=False)
        for _call in range(task["num_calls"]):
            call()

    if task["tensors"]:
        return find_tensor_peak(train, prepare=load)._asdict()
    return find_own_peak(functools.partial(train, load()))._asdict()


def _count_layout_copies(task: Task, _folder: Path) -> Dict[str, Any]:
    """Count what a step of one side copies into another layout."""
    from porting.bench.layout_copies import count_layout_copies

    _load_torch(task)
    workload = _load_harness(task).load(task["settings"]["seed"])
    shapes = {tuple(parameter.shape) for parameter in workload.model.parameters()}
    call = _make_compiled_call(task, workload, copies=False)
    for _call in range(_NUM_WARM_UP_CALLS):
        call()
    return dataclasses.asdict(count_layout_copies(call, steps=workload.steps_per_call, weight_shapes=shapes))


def _take_calls(task: Task, _folder: Path) -> Dict[str, Any]:
    """Take calls from the moment at which imports, model and data are there, and note when each was done.

    Imports are what a program names, and of an eager one also those of torch's first optimizer step.
    """
    from porting.bench.turns import take_calls
    from porting.support.process import used_cpu_seconds

    _load_torch(task)
    source = _load_harness(task)
    _import_ahead(task)
    workload = source.load(task["settings"]["seed"])
    if task["engine"] is not None:
        workload = dataclasses.replace(workload, options=workload.options.replace(engine=task["engine"]))
    cpu_start, began = used_cpu_seconds(), time.perf_counter()
    side = _make_side(task, workload, copies=False)
    is_ported = task["side"] == "ported"
    if task["compiles"]:
        side.compile()  # which waits for what a call would leave to the background
    moments = take_calls(
        side.call,
        began=began,
        num_calls=task["num_calls"],
        limit_seconds=task["seconds"],
        read_engine=side.read_engine if is_ported else lambda: "",
    )
    cpu_seconds = used_cpu_seconds() - cpu_start
    return {**moments._asdict(), "cpu_seconds": cpu_seconds, "cache": side.read_cache() if is_ported else "off"}


def _load_torch(task: Task) -> None:
    """Load what both sides need in any case; what comes on top of it is looked at apart."""
    import torch

    if task["settings"]["threads"] is not None:
        torch.set_num_threads(task["settings"]["threads"])


def _load_harness(task: Task) -> Any:
    """Load what measures and what makes the workload, but nothing of the user's yet."""
    from porting.bench.workloads import Source, load_by_name

    source = Source(**task["source"])
    for needed in ("porting.bench.eager:EagerSide", source.loader):
        load_by_name(needed)
    return source


def _import_ahead(task: Task) -> None:
    """Import what a program of this side names, and for an eager one also what its first optimizer step would."""
    if task["side"] == "ported":
        import porting.bench.ported  # noqa: F401 - imported so that it is there before anything is measured
        import porting.simulator  # noqa: F401
    else:
        from porting.bench.eager import load_late_imports

        load_late_imports()


def _make_compiled_call(task: Task, workload: Workload, *, copies: bool = True) -> Callable[[], Any]:
    """Get the side of the workload ready, compiled if it is the ported one."""
    side = _make_side(task, workload, copies=copies)
    if task["side"] == "ported":
        side.compile()
    return side.call


def _make_side(task: Task, workload: Workload, *, copies: bool = True) -> Any:
    from porting.bench.choices import BenchSettings

    settings = BenchSettings(**task["settings"])
    if task["side"] == "eager":
        from porting.bench.eager import EagerSide

        return EagerSide(workload, copies=copies, **settings.of_eager)
    from porting.bench.ported import PortedSide

    return PortedSide(workload, device=settings.device, copies=copies)
