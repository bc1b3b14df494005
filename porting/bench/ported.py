"""This is the ported side: the same workload through `to_ipu`.

It also reports what compiling cost, and proves that every call ran on the device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch

from porting.api import ExecutorRecord, to_ipu
from porting.bench.eager import take_parts
from porting.bench.workloads import Batch, Workload
from porting.options import PortOptions
from porting.structure import make_call_arguments
from porting.support.process import find_peak_bytes, used_cpu_seconds

__all__ = ["CompileCost", "DeviceProof", "PortedSide", "choose_losses"]


@dataclass(frozen=True)
class CompileCost:
    """What it took until the first call could start, in seconds; None where the backend does not tell.

    `total_seconds` is the whole compilation by the clock. Its parts are the capture of the graph, looking for an
    executable on disk, the compilers (with the measuring, where an engine is chosen), and loading what there is.
    `cpu_seconds` counts this process and the compilers it started. `child_peak_bytes` is the largest of those
    processes. `cache` is "off", "miss" or "hit".
    """

    total_seconds: float
    cpu_seconds: float
    capture_seconds: Optional[float] = None
    find_seconds: Optional[float] = None
    compile_seconds: Optional[float] = None
    load_seconds: Optional[float] = None
    child_peak_bytes: Optional[int] = None
    cache: str = "off"


@dataclass(frozen=True)
class DeviceProof:
    """Where the ported model ran: what its RunReport says, against the calls that were made here."""

    device: str
    backend: str
    is_simulator: bool
    engine: Optional[str]
    calls_made: int
    calls_counted: int
    num_compilations: int

    @property
    def is_proven(self) -> bool:
        """Whether every call was one of the device, and none compiled anew."""
        return self.calls_made == self.calls_counted and self.num_compilations == 1


class PortedSide:
    """Trains a ported copy of the workload's model, or runs it."""

    def __init__(self, workload: Workload, *, device: str = "auto", copies: bool = True) -> None:
        """Copy and port the model, or port the workload's own; nothing is compiled yet."""
        self._workload = workload
        self._num_calls = 0
        self.model, optimizer, loss = take_parts(workload, copies=copies)
        self.options: PortOptions = workload.options if workload.options is not None else PortOptions()
        self.ported = to_ipu(
            self.model.train(), loss, optimizer=optimizer, options=self.options, device=device, **workload.loss_settings
        )
        self._running: Any = self.ported if workload.trains else self.ported.inference()
        self.args, self.kwargs = make_call_arguments(workload.batch)

    def compile(self) -> CompileCost:
        """Compile for the workload's batch."""
        peak_before = find_peak_bytes(of_children=True)
        start, cpu_start = time.perf_counter(), used_cpu_seconds()
        self._running.compile(*self.args, **self.kwargs)
        seconds, cpu_seconds = time.perf_counter() - start, used_cpu_seconds() - cpu_start
        peak = find_peak_bytes(of_children=True)
        obtained = self._find_obtained()
        phases: Mapping[str, float] = {} if obtained is None else obtained.seconds
        return CompileCost(
            total_seconds=seconds,
            cpu_seconds=cpu_seconds,
            # what is left is the way from the model to its graph
            capture_seconds=None if obtained is None else max(0.0, seconds - sum(phases.values())),
            find_seconds=phases.get("find"),
            compile_seconds=phases.get("compile"),
            load_seconds=phases.get("load"),
            # the largest child of all up to now: of this compilation only if it is a new record
            child_peak_bytes=peak if peak != peak_before else None,
            cache=self._find_record().cache if obtained is None else obtained.cache,
        )

    def call(self, batch: Optional[Batch] = None) -> torch.Tensor:
        """Train on one combined batch (without one, on the workload's own) and return the losses that come back.

        Of a workload that does not train, these are the outputs.
        """
        args, kwargs = (self.args, self.kwargs) if batch is None else make_call_arguments(batch)
        self._num_calls += 1
        returned = self._running(*args, **kwargs)
        return self.ported.loss_of(returned) if self._workload.trains else returned

    def describe(self) -> Tuple[DeviceProof, Tuple[str, ...], Tuple[Dict[str, Any], ...]]:
        """Say where it ran, what the port has to say, and what was tried where an engine was chosen by measuring."""
        report, record, obtained = self.ported.report(), self._find_record(), self._find_obtained()
        proof = DeviceProof(
            device=report.device,
            backend=report.backend,
            is_simulator=report.is_simulator,
            engine=None if obtained is None else obtained.summary,
            calls_made=self._num_calls,
            calls_counted=record.num_calls,
            num_compilations=record.num_compilations,
        )
        found = [*report.findings, *(() if obtained is None else obtained.findings)]
        # the port's report may have those of the executable as well
        messages = dict.fromkeys(f"{finding.code}: {finding.message}" for finding in found)
        tuning = None if obtained is None else obtained.tuning
        candidates = [
            {
                "label": candidate.choice.label,
                "compile_seconds": candidate.compile_seconds,
                "call_seconds": candidate.wall_seconds,
                "speed_up_over_replay": None if candidate.speed_up is None else candidate.speed_up.median,
                "problem": candidate.problem or candidate.left_out,
            }
            for candidate in (() if tuning is None else tuning.candidates)
        ]
        return proof, tuple(messages), tuple(candidates)

    def read_engine(self) -> str:
        """Say in a few words what runs the calls now."""
        return str(self._find_record().engine)

    def read_cache(self) -> str:
        """Say whether the executable was on disk: "off", "miss" or "hit"."""
        return str(self._find_record().cache)

    def _find_record(self) -> ExecutorRecord:
        name = "training" if self._workload.trains else "inference"
        return next(record for record in self.ported.report().executors if record.name == name)

    @property
    def executor(self) -> Any:
        """The backend's executor that runs the calls; None as long as nothing is compiled."""
        return self._running.device_executor

    @property
    def is_simulated(self) -> bool:
        """Whether this machine runs the port, and no IPU."""
        return bool(self.ported.port.backend.is_simulator)

    def find_step(self) -> Any:
        """Return what the simulator's executor has compiled: graph, plan, executable; None for any other backend."""
        return self.ported.port.backend.compiled_step(self.executor)

    def _find_obtained(self) -> Any:
        step = self.find_step()
        return None if step is None else step.obtained


def choose_losses(options: PortOptions, losses: List[Any]) -> List[Any]:
    """Choose of the losses of all micro-batches of a call, in the device's order, those that the output mode returns.

    >>> choose_losses(PortOptions(device_iterations=3), ["first", "second", "third"])
    ['third']
    """
    mode, replicas = options.output_mode, options.replicas
    if mode in ("default", "final"):
        return losses[-replicas:]
    if mode == "every_n":
        return [loss for index, loss in enumerate(losses) if (index // replicas + 1) % options.output_every == 0]
    return losses
