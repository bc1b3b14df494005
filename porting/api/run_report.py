"""Prove that a ported model ran on its device, by a report in numbers.

Runners fill the records, and `ported.report()` returns a `RunReport`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from ..adapters.backend_protocol import BackendOptimizer, CompiledStep
from ..diagnostics import Finding, align_columns
from ..options import PortOptions
from ..support.late_pages import show_as_page
from .port import Port

if TYPE_CHECKING:
    from ..executables import Obtained

__all__ = ["VENDORS_ENGINE", "ExecutorRecord", "RunReport", "make_report"]

VENDORS_ENGINE = "PopART"
"""What compiles for an IPU, whatever engine the options name: that choice is the simulator's."""

# more do not fit into a line of 80 columns
_MOST_LISTED_STAGES = 8


@dataclass
class ExecutorRecord:
    """The life of one executor.

    `compile_seconds`, `compiled_at` (seconds since 1970), `samples_per_call`, `cache` and `engine` are those of the
    last compilation. `cache` is "off" where no executables were looked for, otherwise "hit" or "miss". `engine` says in
    a few words what runs the calls; for an IPU that is always the vendor's compiler. Of `compile_seconds` the compiler,
    with the measuring of candidates, took `compiler_seconds`, and the search and loading of an executable
    `load_seconds`; the rest went into capturing and checking the step. `tuning` is a `TuningReport` of the measurements
    that the engine was chosen by. `first_call_not_finite` is the number of the first call whose loss, or in inference
    output, was no number any more. `bytes_to_device` counts the batches and the weights that calls have sent,
    `bytes_to_host` what they have returned. `call_seconds` are divided into those of the transfers, of the run, and of
    the rest, `python_seconds`; an IPU does not tell, and they stay None.
    """

    name: str
    num_compilations: int = 0
    compile_seconds: Optional[float] = None
    compiled_at: Optional[float] = None
    samples_per_call: Optional[int] = None
    num_calls: int = 0
    num_samples: int = 0
    call_seconds: float = 0.0
    cache: str = "off"
    engine: str = ""
    compiler_seconds: Optional[float] = None
    load_seconds: Optional[float] = None
    tuning: Any = None
    first_call_not_finite: Optional[int] = None
    bytes_to_device: int = 0
    bytes_to_host: int = 0
    host_to_device_seconds: Optional[float] = None
    run_seconds: Optional[float] = None
    device_to_host_seconds: Optional[float] = None

    def note_compilation(self, seconds: float, *, samples_per_call: int, cache: str) -> None:
        """Count a compilation that took `seconds` and has just ended."""
        self.num_compilations += 1
        self.first_call_not_finite = None
        self.compile_seconds = seconds
        self.compiled_at = time.time()
        self.samples_per_call = samples_per_call
        self.cache = cache

    @property
    def python_seconds(self) -> Optional[float]:
        """What of the time of the calls was neither a transfer nor a run: checks, and finding the arguments."""
        if self.run_seconds is None:
            return None
        told = self.run_seconds + (self.host_to_device_seconds or 0.0) + (self.device_to_host_seconds or 0.0)
        return max(0.0, self.call_seconds - told)

    def note_engine(self, obtained: Optional[Obtained]) -> None:
        """Keep what runs the calls, and where it came from; `obtained` is the simulator's, None on an IPU."""
        if obtained is None:
            self.engine = VENDORS_ENGINE
            return
        self.engine = obtained.choice.label
        self.cache = obtained.cache
        self.tuning = obtained.tuning
        self.compiler_seconds = obtained.seconds.get("compile", 0.0)
        self.load_seconds = obtained.seconds.get("find", 0.0) + obtained.seconds.get("load", 0.0)

    def note_engine_change(self, step: Optional[CompiledStep]) -> None:
        """Keep what runs the calls from now on, which was found while they went on; `step` is the simulator's."""
        if step is not None:
            self.engine, self.tuning = step.obtained.choice.label, step.obtained.tuning

    def to_dict(self) -> Dict[str, Any]:
        """Return the record as plain values; `compiled_at` in ISO 8601 with the local offset from UTC."""
        record = dict(self.__dict__)
        record["compiled_at"] = None if self.compiled_at is None else _format_time(self.compiled_at)
        record["python_seconds"] = self.python_seconds
        record["tuning"] = None if self.tuning is None else self.tuning.to_dict()
        return record


@dataclass(frozen=True)
class RunReport:
    """Which device ran a ported model, how often, when it was compiled, and where the time of its calls went.

    As a string it is a table; `to_dict` has the same as data. `loader_seconds` is how long programs have waited for
    batches of loaders that `ported.dataloader` made; None where there was none, or none that tells.
    """

    device: str
    backend: str
    is_simulator: bool
    optimizer: str
    options: PortOptions
    executors: Tuple[ExecutorRecord, ...]
    findings: Tuple[Finding, ...] = field(default=())
    loader_seconds: Optional[float] = None

    @property
    def num_training_calls(self) -> int:
        """Calls that trained."""
        return sum(record.num_calls for record in self._training)

    @property
    def first_call_not_finite(self) -> Optional[int]:
        """The first training call whose loss was NaN or infinite, counted from 1; None if there was none."""
        return next((record.first_call_not_finite for record in self._training), None)

    @property
    def micro_batch(self) -> Optional[int]:
        """Samples of a micro-batch: those of the batch compiled for, or else the options'; None while not known."""
        for record in self._training:
            if record.samples_per_call is not None:
                return record.samples_per_call // self.options.micro_batches_per_call
        return self.options.micro_batch if self.options.micro_batch > 1 else None

    @property
    def samples_per_step(self) -> Optional[int]:
        """Samples between two optimizer steps; None while not known."""
        micro = self.micro_batch
        return None if micro is None else micro * self.options.accumulation * self.options.replicas

    def to_dict(self) -> Dict[str, Any]:
        """Return the report as plain values, fit for JSON."""
        return {
            "device": self.device,
            "backend": self.backend,
            "is_simulator": self.is_simulator,
            "optimizer": self.optimizer,
            "micro_batch": self.micro_batch,
            "accumulation": self.options.accumulation,
            "replicas": self.options.replicas,
            "device_iterations": self.options.device_iterations,
            "num_ipus": self.num_ipus,
            "num_stages": len(self.options.stage_ipus),
            "stages": dict(self.options.stages or {}),
            "recompute": list(self.options.recompute),
            "samples_per_step": self.samples_per_step,
            "precision": self.options.precision,
            "loader_seconds": self.loader_seconds,
            "executors": [record.to_dict() for record in self.executors],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        """Lay the report out as a table, a row for each executor."""
        lines = [f"{name:<10}  {text}" for name, text in self.list_facts()]
        lines += ["", *align_columns(self.list_executors())]
        seconds = self.list_seconds()
        lines += align_columns(seconds) if len(seconds) > 1 else []
        lines.extend(f"{finding.to_dict()['severity']}[{finding.code}]: {finding.message}" for finding in self.findings)
        return "\n".join(lines)

    _repr_html_ = show_as_page("porting.api.run_report_page:write_run_page")

    def list_facts(self) -> List[Tuple[str, str]]:
        """List what ran, each fact with its name."""
        return [
            ("device", self.device + ("  (no IPU took part)" if self.is_simulator else "")),
            ("backend", self.backend),
            ("optimizer", self.optimizer),
            ("step", self._describe_step()),
            *([("pipeline", self._describe_pipeline())] if self.options.stages else []),
            *self._describe_not_finite(),
        ]

    def list_executors(self) -> List[Tuple[str, ...]]:
        """List a row for each executor, behind the header."""
        header = ("executor", "compiled at", "compile s", "engine", "cache", "calls", "samples", "samples/s")
        return [header, *map(_make_row, self.executors)]

    @property
    def num_ipus(self) -> int:
        """IPUs that the options spread all replicas over."""
        return self.options.num_ipus * self.options.replicas

    @property
    def _training(self) -> List[ExecutorRecord]:
        return [record for record in self.executors if record.name == "training"]

    def _describe_not_finite(self) -> List[Tuple[str, str]]:
        """Say since when the loss, or else what an inference returns, is no number; nothing if it is one."""
        records = [record for record in self.executors if record.first_call_not_finite is not None]
        if not records:
            return []
        first = next((record for record in records if record.name == "training"), records[0])
        call, steps = first.first_call_not_finite or 1, self.options.device_iterations
        since = f"call {call} of the {first.name}"
        if first.name == "training":
            since = f"step {call}" if steps == 1 else f"call {call}, steps {(call - 1) * steps + 1} to {call * steps}"
        return [("not finite", f"since {since}; `ported.find_nan(batch)` names the operator and the line")]

    def list_seconds(self) -> List[Tuple[str, ...]]:
        """List where the time of each executor's calls went, as far as it is known, behind the header."""
        rows: List[Tuple[str, ...]] = [("seconds of", "loader", "host to device", "run", "device to host", "Python")]
        for record in self.executors:
            parts = (
                self.loader_seconds if record.name == "training" else None,
                record.host_to_device_seconds,
                record.run_seconds,
                record.device_to_host_seconds,
                record.python_seconds,
            )
            if record.run_seconds is not None:
                cells = ["-" if seconds is None else f"{seconds:.3f}" for seconds in parts]
                rows.append((record.name, *cells))
        return rows

    def _describe_step(self) -> str:
        options, total = self.options, self.samples_per_step
        factors = [f"{'?' if self.micro_batch is None else self.micro_batch} in a micro-batch"]
        factors += [f"{options.accumulation} accumulated"] if options.accumulation > 1 else []
        factors += [f"{options.replicas} replicas"] if options.replicas > 1 else []
        samples = f"{'?' if total is None else total} samples"
        if len(factors) > 1:
            samples += f" = {' x '.join(factors)}"
        steps = "1 step" if options.device_iterations == 1 else f"{options.device_iterations} steps"
        return f"{samples}; {steps} a call; {options.precision}"

    def _describe_pipeline(self) -> str:
        ipus = self.options.stage_ipus
        of_replicas = f" in each of {self.options.replicas} replicas" if self.options.replicas > 1 else ""
        order = f": {', '.join(map(str, ipus))}" if len(ipus) <= _MOST_LISTED_STAGES else ""
        return f"{len(ipus)} stages on {self.options.num_ipus} IPUs{of_replicas}{order}"


def make_report(
    port: Port,
    optimizer: Optional[BackendOptimizer],
    findings: Sequence[Finding],
    records: Sequence[ExecutorRecord],
    *,
    waiting: Sequence[Any] = (),
) -> RunReport:
    """Make the report of a port with the device's `optimizer`, whose executors have these records, as they are now.

    `waiting` are the counters of its loaders, which have `seconds`.
    """
    rates = [] if optimizer is None else [f"{float(group['lr']):g}" for group in optimizer.param_groups]
    return RunReport(
        device=port.backend.device_description,
        backend=f"{port.backend.name} {getattr(port.backend.module, '__version__', '')}".strip(),
        is_simulator=port.backend.is_simulator,
        optimizer="not made yet" if optimizer is None else f"{type(optimizer).__name__}, lr {', '.join(rates)}",
        options=port.options,
        executors=tuple(replace(record) for record in records),
        findings=tuple(findings),
        loader_seconds=sum(counter.seconds for counter in waiting) if waiting else None,
    )


def _make_row(record: ExecutorRecord) -> Tuple[str, ...]:
    rate = f"{record.num_samples / record.call_seconds:,.0f}" if record.call_seconds and record.num_calls else "-"
    return (
        record.name,
        "not compiled" if record.compiled_at is None else _format_time(record.compiled_at)[:16].replace("T", " "),
        "-" if record.compile_seconds is None else f"{record.compile_seconds:.2f}",
        record.engine or "-",
        record.cache,
        str(record.num_calls),
        f"{record.num_samples:,}",
        rate,
    )


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
