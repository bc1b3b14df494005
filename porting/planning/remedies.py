"""This module lists remedies for a step that does not fit, in the order to try them, each with what it buys and costs.

First what costs nothing or little (fewer outputs for the host, half precision, a smaller micro-batch), then what costs
time (recomputation), transfers in every step (state off the chip), or slower products (available memory, serialized
products and lookups), and last what costs more IPUs (a pipeline). Bytes are those of the memory
model, and time is that of the throughput model. Plans show them, and the warning of a step that does not fit takes the
first.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..diagnostics import OptionError
from ..machines import Machine
from ..options import PortOptions
from .ladder import CHEAP, LADDER, WORTH_IT, Propose, spend_spare
from .memory_model import Layout, measure_fullest, measure_ipus
from .step_memory import StepMemory
from .throughput import Forecast, Pace

__all__ = ["Remedy", "choose_remedies", "list_first_remedy", "list_remedies"]

# what saves no bytes must gain as much time
_QUICKER = 0.01
_MANY_TIMES = 9.5


@dataclass(frozen=True)
class Remedy:
    """A change and its effect: the bytes of the fullest IPU with it alone, and with all remedies before it as well.

    `change` says what to write, `speed` is how many more samples a second the machine trains with it than with those
    before it alone, -0.25 being a quarter less, uncertain by `speed_error`; None where no machine was asked for.
    `num_ipus` are the IPUs of a replica then, and `options` the changes of `PortOptions`.
    """

    name: str
    change: str
    alone_bytes: int
    together_bytes: int
    num_ipus: int
    options: Mapping[str, object]
    speed: Optional[float] = None
    speed_error: Optional[float] = None
    # what of the layout it changes
    layout: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def time(self) -> str:
        """The change of the speed in words, with its standard error."""
        if self.speed is None or self.speed_error is None:
            return ""
        if self.speed >= _MANY_TIMES:
            return f"{1 + self.speed:,.0f} times"
        return f"{round(100 * self.speed):+d}% +-{100 * self.speed_error:.0f}"

    def to_dict(self) -> Dict[str, Any]:
        """Return the remedy as plain values."""
        shown = {name: value for name, value in self.__dict__.items() if name != "layout"}
        return {**shown, "options": dict(self.options)}


_Speed = Callable[[Layout, PortOptions], Forecast]


def list_remedies(
    step: StepMemory,
    layout: Layout,
    options: PortOptions,
    machine: Optional[Machine] = None,
    *,
    limit: int,
    loader_rate: Optional[float] = None,
) -> Tuple[Remedy, ...]:
    """Return all remedies for a step whose fullest IPU may hold `limit` bytes, with their time on `machine`.

    Each is chosen on top of those before it; the pipeline is the shortest with which it fits, or else the longest.
    """
    pace = functools.partial(_forecast_speed, step, machine, loader_rate) if machine else None
    return tuple(_iter_remedies(step, layout, options, limit, LADDER, pace))


def list_first_remedy(
    step: StepMemory,
    layout: Layout,
    options: PortOptions,
    _machine: Optional[Machine] = None,
    *,
    limit: int,
    **_pace: object,
) -> Tuple[Remedy, ...]:
    """Return the first cheap remedy that saves at least 5 % by itself, or none."""
    enough = WORTH_IT * measure_fullest(step, layout)
    cheap = _iter_remedies(step, layout, options, limit, CHEAP, None)
    return tuple(next(([remedy] for remedy in cheap if remedy.alone_bytes < enough), []))


def choose_remedies(
    remedies: Sequence[Remedy], step: StepMemory, layout: Layout, options: PortOptions, *, limit: int
) -> PortOptions:
    """Return the options with those of the listed `remedies` that are enough for `limit`, or with all if they are not.

    The first ones are taken until it fits. Then spare memory is spent back: what costs the most is left out again where
    the others are enough, more IPUs before all else, and what stays is as mild as there is room for.
    """
    if measure_fullest(step, layout) <= limit:
        return options
    enough = next((number for number, remedy in enumerate(remedies, 1) if remedy.together_bytes <= limit), None)
    chosen = list(remedies[:enough])
    if enough is not None:
        chosen = _spend_back(chosen, step, layout, limit)
    changes: Dict[str, Any] = {name: value for remedy in chosen for name, value in remedy.options.items()}
    if enough is not None:
        changes = spend_spare(step, _join_layouts(layout, chosen), options, changes, limit)
    suggested = options.replace(**changes)
    if not changes.get("stages"):
        return suggested
    return suggested.replace(accumulation=max(suggested.accumulation, suggested.least_accumulation))


def _spend_back(chosen: List[Remedy], step: StepMemory, layout: Layout, limit: int) -> List[Remedy]:
    """Leave out what the others make needless, and what saves no memory, the most costly first."""
    for remedy in sorted(reversed(chosen), key=lambda remedy: (-remedy.num_ipus, remedy.speed or 0.0)):
        fewer = [other for other in chosen if other is not remedy]
        if measure_fullest(step, _join_layouts(layout, fewer)) <= limit:
            chosen = fewer
    return chosen


def _join_layouts(layout: Layout, remedies: Sequence[Remedy]) -> Layout:
    changes = {name: value for remedy in remedies for name, value in remedy.layout.items() if name != "serialized"}
    parts = {name: count for remedy in remedies for name, count in remedy.layout.get("serialized", {}).items()}
    return replace(layout, **changes, serialized={**layout.serialized, **parts})


def _iter_remedies(
    step: StepMemory,
    layout: Layout,
    options: PortOptions,
    limit: int,
    proposals: Sequence[Propose],
    pace: Optional[_Speed],
) -> Iterator[Remedy]:
    together, written = layout, options
    size, speed = measure_fullest(step, layout), pace(layout, options) if pace else None
    for propose in proposals:
        change = propose(step, together, written, limit)
        if change is None:
            continue
        try:
            changed, changed_options = replace(together, **change.layout), written.replace(**change.options)
        except OptionError:
            continue  # it contradicts another option of the user's
        changed_size = measure_fullest(step, changed)
        changed_speed = pace(changed, changed_options) if pace else None
        gain, error = speed.compare(changed_speed) if speed and changed_speed else (None, None)
        if changed_size >= size and (gain or 0.0) < _QUICKER:
            continue
        together, written, size, speed = changed, changed_options, changed_size, changed_speed
        yield Remedy(
            name=change.name,
            change=change.words,
            alone_bytes=measure_fullest(step, replace(layout, **change.layout)),
            together_bytes=size,
            num_ipus=together.num_ipus,
            options=change.options,
            speed=gain,
            speed_error=None if error is None or gain is None else math.hypot(error, change.unsure * gain),
            layout=change.layout,
        )


def _forecast_speed(
    step: StepMemory, machine: Machine, loader_rate: Optional[float], layout: Layout, options: PortOptions
) -> Forecast:
    accumulation = options.accumulation
    if step.mode == "training":
        accumulation = max(accumulation, 2 * len(layout.begins) - 1)
    memories = measure_ipus(step, layout)
    return Pace(step, layout, memories, machine, accumulation, loader_rate).forecast()
