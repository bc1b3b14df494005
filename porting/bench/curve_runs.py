"""The processes of a curve: eager, the port without an executable on disk, and the port with one, in turns."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from porting.support.interleaved import take_turns

from .children import make_plain_environment, run_job
from .choices import BenchSettings
from .curve import Curve, list_marks, sum_up_side
from .processes import ChildError
from .workloads import Source

__all__ = ["measure_curve"]

# a port that is slower than eager has this many times as long for the same steps
_PATIENCE = 3.0


def measure_curve(source: Source, settings: BenchSettings, *, engine: str, steps_per_call: int) -> Curve:
    """Time processes of eager, cold and warm sides in turns to as many steps as eager takes in the time for a curve.

    Processes that are not counted go first: they write the bytecode that the others find, show how many steps there is
    time for, and compile what a warm process finds in the cache of `source`. For an engine that only takes what is
    there, "ready", they leave in a cache of its own what `porting compile` does.
    """
    marks = list_marks(steps_per_call)
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as folder:
        run = functools.partial(_run_side, settings=settings, environment=make_plain_environment(Path(folder)))
        try:
            fitting = run("eager", source, num_calls=marks[-1] // steps_per_call, seconds=settings.curve_seconds)
            if engine == "ready":
                # with executables in it, the user's own would be another one
                source = source.with_cache(str(Path(folder) / "warm"))
            run("ported", source, num_calls=1, engine="auto" if engine == "ready" else None, compiles=True)
            num_calls = len(fitting["call_seconds"])
            steps = [mark for mark in marks if mark <= num_calls * steps_per_call] or marks[:1]
            run = functools.partial(
                run, num_calls=steps[-1] // steps_per_call, seconds=_PATIENCE * settings.curve_seconds
            )
            caches = (source.with_cache(str(Path(folder) / f"cold-{number}")) for number in range(settings.curve_runs))
            runs = take_turns(
                {
                    "eager": lambda: run("eager", source),
                    "cold": lambda: run("ported", next(caches)),
                    "warm": lambda: run("ported", source),
                },
                rounds=settings.curve_runs,
            )
        except ChildError as failure:
            return Curve(reason=str(failure))
    eager, cold, warm = (
        sum_up_side(runs[name], runs["eager"], steps, steps_per_call=steps_per_call)
        for name in ("eager", "cold", "warm")
    )
    return Curve(tuple(steps), settings.curve_runs, eager, cold, warm)


def _run_side(
    side: str,
    source: Source,
    *,
    settings: BenchSettings,
    environment: Mapping[str, str],
    num_calls: int,
    seconds: Optional[float] = None,
    engine: Optional[str] = None,
    compiles: bool = False,
) -> Dict[str, Any]:
    more = {"num_calls": num_calls, "seconds": seconds, "engine": engine, "compiles": compiles}
    # what it has going in the background must not disturb the next one
    return run_job(
        "curve",
        side,
        source,
        settings,
        environment=environment,
        more=more,
        more_seconds=_PATIENCE * settings.curve_seconds,
    )
