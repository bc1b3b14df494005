"""This module measures what a call takes beyond its operators: planning it, entering and leaving it.

`measure` uses it for `--growth`; the least of several times is taken, since a busy machine only adds to it.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

from porting.bench.ported import PortedSide

__all__ = ["Machinery", "measure_machinery"]

_NUM_PORTS, _NUM_SHARES = 3, 3
# a busy machine leaves a call alone every now and then
_LEAST_CALLS, _MOST_CALLS, _CALLS_SECONDS = 9, 300, 1.0


@dataclass(frozen=True)
class Machinery:
    """Seconds of a call, the least of some: how work grows is asked, and not how busy the machine is.

    None with a `reason` where the device does not tell. `capture_seconds` are those of further ports of the same model,
    for which everything has been imported, and `first_call_seconds` what their first call takes, the compilers of the
    first port added. `plan_seconds` is what it takes to list the micro-batches of a call, which is done once for all
    calls. `call_seconds` are those of a whole call. `around_seconds` is what a call takes outside of its run: checks,
    finding the arguments, converting them, handing back results. `beyond_seconds` is all that it takes beyond its
    operators, the former included; None for compiled programs, in which nobody sees operators.
    """

    capture_seconds: Optional[float] = None
    first_call_seconds: Optional[float] = None
    plan_seconds: Optional[float] = None
    call_seconds: Optional[float] = None
    around_seconds: Optional[float] = None
    beyond_seconds: Optional[float] = None
    reason: str = ""


def measure_machinery(side: PortedSide, port_again: Callable[[], PortedSide], *, compile_seconds: float) -> Machinery:
    """Measure further calls of a side that has been called before, and the first calls of new ports of it.

    `compile_seconds` are those that compilers took for `side`, whose executable the others find on disk.
    """
    step = side.find_step()
    if step is None:
        return Machinery(reason="an IPU does not tell")
    captures, first_calls = zip(*(_time_first_call(port_again()) for _port in range(_NUM_PORTS)))
    calls: List[float] = []
    around: List[float] = []
    plans: List[float] = []
    began = time.perf_counter()
    while len(calls) < _LEAST_CALLS or (len(calls) < _MOST_CALLS and time.perf_counter() - began < _CALLS_SECONDS):
        start = time.perf_counter()
        side.call()
        calls.append(time.perf_counter() - start)
        _entered, started, ended, _left = side.executor.device_session.call_times
        around.append(calls[-1] - (ended - started))
        plan = dataclasses.replace(step.plan)
        start = time.perf_counter()
        # a plan keeps both once they were asked for
        _listed = plan.steps, plan.micro_batches
        plans.append(time.perf_counter() - start)
    beyond = None
    if step.obtained.choice.engine == "replay":
        # on a machine with IPUs there may be a torch that the engines are not for
        share_of: Any = importlib.import_module("porting.engines.replay.operator_share").find_operator_share
        beyond = (1.0 - max(share_of(side.call) for _share in range(_NUM_SHARES))) * min(calls)
    return Machinery(
        capture_seconds=min(captures),
        first_call_seconds=min(first_calls) + compile_seconds,
        plan_seconds=min(plans),
        call_seconds=min(calls),
        around_seconds=min(around),
        beyond_seconds=beyond,
    )


def _time_first_call(side: PortedSide) -> Tuple[float, float]:
    """Return the seconds of the capture, and of all that there is until the first call is done."""
    start = time.perf_counter()
    cost = side.compile()
    side.call()
    return cost.capture_seconds or 0.0, time.perf_counter() - start
