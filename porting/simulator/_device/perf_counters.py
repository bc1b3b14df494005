"""Time the last call: when its tensors moved between host and device, and its latencies.

The executor's latencies and its cycle count come from here. A call is timed at four points: inputs handed over, run
started, run ended, outputs handed back. The time of the run is divided evenly over its steps, since the simulator runs
them as one program. Times are seconds of the wall clock.
"""

from __future__ import annotations

import datetime
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ...capture import StepGraph
from ...engines.calls.call_plan import CallPlan
from .._options.simulator_options import read_extras
from ..errors import createPoptorchError
from ..options import Options
from .device_target import CLOCK_HERTZ, read_simulated_version

__all__ = [
    "EVENTS",
    "CallTimes",
    "Counters",
    "Latency",
    "collect_stamps",
    "count_cycles",
    "measure_compilation",
    "measure_latency",
]

EVENTS = ("input", "input_complete", "output", "output_complete")

# Input handed over, run started, run ended, outputs handed back.
CallTimes = Tuple[float, float, float, float]
Counters = Dict[str, List[List[float]]]
Latency = Tuple[float, float, float]


def collect_stamps(graph: StepGraph, plan: CallPlan, times: CallTimes, options: Options) -> Counters:
    """Return for each event of a call a list of stamps for each input or output of the graph."""
    num_outputs = len(graph.outputs)
    entered: List[Tuple[float, float]] = []
    left: List[Tuple[float, float]] = []
    # synthetic data are made on the device: nothing moves
    if not options._Popart.options.get("syntheticDataMode"):
        num_outputs += len(graph.mutated_inputs)
        entered, left = _time_steps(plan, times)
    counters: Counters = {}
    for event, count, stamps in (("input", len(graph.inputs), entered), ("output", num_outputs, left)):
        counters[event] = [[begin for begin, _end in stamps] for _ in range(count)] or [[]]
        counters[f"{event}_complete"] = [[end for _begin, end in stamps] for _ in range(count)] or [[]]
    return counters


def measure_latency(
    counters: Mapping[str, Sequence[Sequence[float]]], start: str, end: str, start_reduce: Callable[..., float]
) -> Latency:
    """Return (shortest, longest, mean) time from the event `start` to the event `end` over the steps of a call.

    The start of a step is `start_reduce` over all inputs (or outputs), its end the latest; where several steps share
    an output, the first of them counts. Raises AssertionError if they cannot be shared out evenly.
    """
    starts = [start_reduce(stamps) for stamps in zip(*counters[start])]
    ends = [max(stamps) for stamps in zip(*counters[end])]
    if not ends or not starts:
        return 0.0, 0.0, 0.0
    if len(starts) % len(ends):
        raise AssertionError(
            f"Internal error: the {len(starts)} {start} events cannot be shared out over {len(ends)} {end} events"
        )
    per_end = len(starts) // len(ends)
    firsts = [min(starts[index : index + per_end]) for index in range(0, len(starts), per_end)]
    durations = [last - first for first, last in zip(firsts, ends)]
    return min(durations), max(durations), sum(durations) / len(durations)


def count_cycles(times: Optional[CallTimes], options: Options) -> int:
    """Return a run's cycles at the IPU's clock; `poptorch.Error` without the option, and before the first run."""
    if not options._Popart.options.get("instrumentWithHardwareCycleCounter"):
        raise createPoptorchError("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
    if times is None:
        raise createPoptorchError("Please run the model at least once before obtaining cycle count.")
    _entered, started, ended, _left = times
    # without hardware there is no clock: that of a Bow
    return max(1, int((ended - started) * CLOCK_HERTZ[read_simulated_version() or 21]))


def measure_compilation(options: Options) -> datetime.timedelta:
    """Return the seconds of the last compilation and one more: a real one takes that long, and programs rely on it.

    Raises `poptorch.Error` without the progress bar, which does the measuring.
    """
    if not options._show_compilation_progress_bar:
        raise createPoptorchError("Please set showCompilationProgressBar option to obtain compilation time.")
    measured = read_extras(options).progress_bar.compilation_time or datetime.timedelta(0)
    return measured + datetime.timedelta(seconds=1)


def _time_steps(plan: CallPlan, times: CallTimes) -> Tuple[List[Tuple[float, float]], List[Tuple[float, float]]]:
    """Return (requested, received) of each micro-batch, and (ready, returned) of each result that is kept."""
    entered, started, ended, left = times
    num_runs = plan.iterations * plan.accumulation * plan.replicas
    each, transfer = (ended - started) / num_runs, (started - entered) / num_runs
    begins = [started + number * each for number in range(num_runs)]
    # the final result and a sum are one for each replica
    num_kept = plan.replicas
    if plan.output_mode in ("all", "every_n"):
        period = plan.output_period if plan.output_mode == "every_n" else 1
        num_kept = plan.iterations // period * plan.accumulation * plan.replicas
    # with a period above the iterations nothing is kept
    interval, back = (ended - started) / max(num_kept, 1), (left - ended) / max(num_kept, 1)
    ends = [started + (number + 1) * interval for number in range(num_kept)]
    return [(begin - transfer, begin) for begin in begins], [(end, end + back) for end in ends]
