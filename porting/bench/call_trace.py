"""This module records a timeline of training calls, which chrome://tracing and Perfetto can show.

`porting trace` uses it. Calls are timed as they are. The operators of a run are timed in a replay of the same step on a
copy of the device, since neither a compiled step nor an IPU shows them, and are then scaled to fit into the run.
"""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from porting.api import PortedModel
from porting.api.rehearsals import rehearse
from porting.structure import make_call_arguments

if TYPE_CHECKING:
    from porting.engines.replay.timed_replay import TimedSpan

__all__ = ["CallTrace", "record_calls"]

_HOST, _DEVICE = 1, 2
_OF_SIMULATOR = (
    "the times are those of this machine's CPU, on which the simulator runs; they say nothing about the speed of an IPU"
)
_OF_OPERATORS = (
    "operators are timed one by one in an instrumented replay of the captured step, on a copy of the device, and "
    "scaled to fit into the run that they are shown in; `measured_us` is what was measured"
)
_NO_OPERATORS = "an IPU shows no operators and no transfers: a run is the whole call (see PopVision for what is inside)"


@dataclass(frozen=True)
class _TimedCall:
    """Moments of a call, in seconds of one clock: when waiting for its batch began, when it was there, and so on.

    `device` are (inputs handed over, run started, run ended, outputs handed back), or None where nobody tells.
    """

    asked: float
    loaded: float
    returned: float
    device: Optional[Tuple[float, float, float, float]]


@dataclass(frozen=True)
class CallTrace:
    """Timed calls, and for each the operators of its run; `facts` say what was measured and how."""

    calls: Tuple[_TimedCall, ...]
    operators: Tuple[Tuple[TimedSpan, ...], ...]
    facts: Dict[str, Any]

    def to_dict(self) -> Dict[str, Any]:
        """Return it in the Trace Event Format, times in microseconds."""
        events: List[Dict[str, Any]] = [
            _name_track("process_name", 0, f"porting: {self.facts['program']}"),
            _name_track("thread_name", _HOST, "host"),
            _name_track("thread_name", _DEVICE, self.facts["device"]),
        ]
        for number, call in enumerate(self.calls):
            events += self._iter_events(number, call)
        return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": self.facts}

    def to_json(self) -> bytes:
        """Return it as the content of a file."""
        return json.dumps(self.to_dict(), indent=1).encode()

    def _iter_events(self, number: int, call: _TimedCall) -> Iterator[Dict[str, Any]]:
        start = self.calls[0].asked
        called = {"call": number + 1}

        def span(name: str, begin: float, end: float, track: int = _HOST) -> Dict[str, Any]:
            return _make_span(name, begin - start, end - begin, track, name, called)

        yield span("loader", call.asked, call.loaded)
        if call.device is None:
            yield span("run", call.loaded, call.returned, _DEVICE)
            return
        entered, started, ended, left = call.device
        yield span("Python", call.loaded, entered)
        yield span("host to device", entered, started)
        yield span("run", started, ended, _DEVICE)
        yield from _fit_operators(self.operators[number], started - start, ended - started, called)
        yield span("device to host", ended, left)
        yield span("Python", left, call.returned)


def record_calls(ported: PortedModel, batches: Iterator[Any], *, num_calls: int, program: str) -> CallTrace:
    """Train for `num_calls` calls and return their timeline; one call before them warms up and compiles.

    `batches` yields a combined batch for each call, and is what "loader" waits for. `program` is a name for the page.
    The weights are trained as by any other calls; the replay that times the operators changes nothing.
    """
    batch = next(batches)
    args, kwargs = make_call_arguments(batch)
    ported(*args, **kwargs)
    calls: List[_TimedCall] = []
    for _ in range(num_calls):
        asked = time.perf_counter()
        args, kwargs = make_call_arguments(next(batches))
        loaded = time.perf_counter()
        ported(*args, **kwargs)
        calls.append(_TimedCall(asked, loaded, time.perf_counter(), _read_device_times(ported)))
    port, executor = ported.port, ported.device_executor
    rehearsal = rehearse(port, executor, args, kwargs)
    operators: List[Tuple[TimedSpan, ...]] = []
    if rehearsal is not None:
        # a machine with IPUs may have a torch that the engines are not for
        time_operators = importlib.import_module("porting.engines.replay.timed_replay").time_operators
        time_operators(rehearsal.copy())  # warms up
        operators = [tuple(time_operators(rehearsal.copy())) for _ in calls]
    report = ported.report()
    is_told = port.backend.is_simulator
    return CallTrace(
        calls=tuple(calls),
        operators=tuple(operators),
        facts={
            "program": program,
            "device": report.device,
            "backend": report.backend,
            "engine": report.executors[0].engine,
            "num_calls": num_calls,
            "samples_per_call": report.executors[0].samples_per_call,
            "times": _OF_SIMULATOR if is_told else "the times are those of the host's clock",
            "operators": _OF_OPERATORS if is_told else _NO_OPERATORS,
        },
    )


def _read_device_times(ported: PortedModel) -> Optional[Tuple[float, float, float, float]]:
    step = ported.port.backend.compiled_step(ported.device_executor)
    times: Optional[Tuple[float, float, float, float]] = (
        None if step is None else ported.device_executor.device_session.call_times
    )
    return times


def _fit_operators(
    spans: Sequence[TimedSpan], run_start: float, run_seconds: float, called: Dict[str, Any]
) -> Iterator[Dict[str, Any]]:
    replayed = max((span.start_seconds + span.seconds for span in spans), default=0.0)
    scale = run_seconds / replayed if replayed else 0.0
    for span in spans:
        facts: Dict[str, Any] = {**called, "measured_us": round(1e6 * span.seconds, 3)}
        if not span.is_phase:
            facts.update(phase=span.phase, module=span.module_path, source=str(span.place or ""))
        begin = run_start + scale * span.start_seconds
        kind = "pass" if span.is_phase else "operator"
        yield _make_span(span.name, begin, scale * span.seconds, _DEVICE, kind, facts)


def _make_span(
    name: str, start_seconds: float, seconds: float, track: int, kind: str, facts: Dict[str, Any]
) -> Dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": round(1e6 * start_seconds, 3),
        "dur": round(1e6 * max(0.0, seconds), 3),
        "pid": 1,
        "tid": track,
        "args": facts,
    }


def _name_track(what: str, track: int, name: str) -> Dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}
