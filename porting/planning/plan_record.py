"""This module holds what a plan says of a step: its memory and stages, and what follows from them when it is asked for.

`porting.plan` and `porting.memory_report` return it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from ..diagnostics import Finding
from ..machines import Chip, Machine
from ..options import PortOptions
from ..support.late_pages import show_as_page
from .evidence import iter_reasons_outside
from .layouts import find_fitting, find_limit, find_smallest_machine
from .memory_model import Layout, StageMemory, measure_ipus, measure_resident
from .plan_text import format_mb, format_plan
from .remedies import Remedy, choose_remedies
from .step_memory import StepMemory
from .throughput import Forecast, Pace, Scale

__all__ = ["Plan"]

# of the memory of all tiles, what a program can fill
_USABLE = 0.98
# the model itself is off by so much, besides the errors of its terms
_MODEL_ERROR = 0.05
_SURE, _BARS = 0.9, 1.5
# outside the evidence, shares of the memory that leave no doubt
_CLEARLY_FITS, _CLEARLY_NOT = 0.5, 1.3
_PAYS = 1.5


@dataclass(frozen=True)
class Plan:
    """What a step needs of each IPU of a replica, and what a machine makes of it; as a string it is a table.

    `ipus` has the bytes by what they are for, `stages` the modules that begin a stage on an IPU, which
    `PortOptions(pipeline=plan)` takes. `remedies` are what would help, in the order to try it, and `options` those that
    were planned for. All else is computed when it is asked for, from the `step` and its `layout`.
    """

    machine: Machine
    ipus: Tuple[StageMemory, ...]
    stages: Mapping[str, int]
    remedies: Tuple[Remedy, ...]
    options: PortOptions
    # what the rest follows from, when it is asked for: a warning asks for the memory alone
    step: StepMemory = field(repr=False, compare=False)
    layout: Layout = field(repr=False, compare=False)
    loader_rate: Optional[float] = field(repr=False, compare=False)

    not_counted = (
        "what the compiler shares, rearranges or computes again by itself",
        "streams that lie in the memory of the host",
    )

    @functools.cached_property
    def suggested(self) -> PortOptions:
        """The options with those remedies that are enough."""
        return choose_remedies(self.remedies, self.step, self.layout, self.options, limit=find_limit(self.target))

    @functools.cached_property
    def forecast(self) -> Forecast:
        """The speed on the machine."""
        return self._pace.forecast()

    @functools.cached_property
    def scaling(self) -> Tuple[Scale, ...]:
        """The speed on 1, 2, 4, ... replicas, also more than the machine has."""
        return tuple(self._pace.list_scaling())

    @functools.cached_property
    def _pace(self) -> Pace:
        """What a speed follows from: the memory as it is planned, also where a report has corrected it."""
        memories = measure_ipus(self.step, self.layout)
        return Pace(self.step, self.layout, memories, self.machine, self.options.accumulation, self.loader_rate)

    @property
    def least_ipus(self) -> int:
        """The IPUs that have room for the weights and what belongs to them."""
        return math.ceil(measure_resident(self.step, self.layout)[-1] / self.target.memory_bytes) or 1

    @functools.cached_property
    def fitting(self) -> Optional[Layout]:
        """The layout on the fewest IPUs on which the step fits with these options, or None up to 64 of them."""
        found = find_fitting(self.step, self.layout, self.options, find_limit(self.target))
        return None if found is None else found[0]

    @property
    def smallest_machine(self) -> Optional[Machine]:
        """The known machine with the fewest of these chips on which the step fits, or None."""
        return None if self.fitting is None else find_smallest_machine(self.fitting, self.machine)

    @functools.cached_property
    def outside(self) -> Tuple[str, ...]:
        """Why the published evidence does not cover the step; empty where it does."""
        return tuple(iter_reasons_outside(self.step, self.layout, self.machine))

    @property
    def mode(self) -> str:
        """Whether it is a step of "training" or of "inference"."""
        return self.step.mode

    @property
    def micro_batch(self) -> int:
        """The rows of one run of `forward`."""
        return self.step.micro_batch

    @property
    def target(self) -> Chip:
        """The chip of the machine."""
        return self.machine.chip

    @property
    def fullest(self) -> StageMemory:
        """The IPU that holds the most."""
        return max(self.ipus, key=lambda memory: memory.total_bytes)

    @property
    def bytes_per_ipu(self) -> int:
        """What the fullest IPU holds."""
        return self.fullest.total_bytes

    @property
    def error_bytes(self) -> int:
        """The standard error of what the fullest IPU holds."""
        return int(math.hypot(self.fullest.error_bytes, _MODEL_ERROR * self.bytes_per_ipu))

    @property
    def low_bytes(self) -> int:
        """The least that the fullest IPU is likely to need."""
        return int(max(0, self.bytes_per_ipu - _BARS * self.error_bytes))

    @property
    def high_bytes(self) -> int:
        """The most that the fullest IPU is likely to need."""
        return int(self.bytes_per_ipu + _BARS * self.error_bytes)

    @property
    def share(self) -> float:
        """What the fullest IPU holds of its memory: 1.0 is all of it."""
        return self.bytes_per_ipu / self.target.memory_bytes

    @property
    def probability(self) -> float:
        """How likely the step is to fit, from 0 to 1, if the error of its sum is normal."""
        room = _USABLE * self.target.memory_bytes - self.bytes_per_ipu
        return 0.5 * (1 + math.erf(room / self.error_bytes / math.sqrt(2)))

    @property
    def binding(self) -> str:
        """The largest term of the fullest IPU, as in "kept_bytes"."""
        parts = self.fullest.parts
        return max(parts, key=lambda name: parts[name])

    @property
    def verdict(self) -> str:
        """Say "fits" or "does not fit" where 9 of 10 such steps would, else "tight", or "outside the evidence"."""
        if self.outside and _CLEARLY_FITS < self.share < _CLEARLY_NOT:
            return "outside the evidence"
        if self.probability >= _SURE:
            return "fits"
        return "tight" if self.probability > 1 - _SURE else "does not fit"

    @property
    def pays_up_to(self) -> int:
        """The replicas up to which twice as many train at least 1.5 times as many samples."""
        rates = [row.samples_per_second for row in self.scaling]
        ends = (row for row, now, then in zip(self.scaling, rates, rates[1:]) if then < _PAYS * now)
        return next(ends, self.scaling[-1]).replicas

    @property
    def fits(self) -> bool:
        """Whether the verdict is that it fits, or may."""
        return self.verdict in ("fits", "tight")

    @property
    def has_speed(self) -> bool:
        """Whether a speed is told: what does not fit has none."""
        return self.verdict != "does not fit"

    @property
    def finding(self) -> Optional[Finding]:
        """M001 with the remedies where it does not fit, else None."""
        if self.has_speed:
            return None
        needed, present = format_mb(self.bytes_per_ipu), format_mb(self.target.memory_bytes)
        return Finding(
            "M001",
            message=f"IPU {self.fullest.ipu} would need {needed}, and has {present}",
            notes=f"an estimate, {format_mb(self.low_bytes)} to {format_mb(self.high_bytes)}",
            help=tuple(remedy.change for remedy in self.remedies),
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return the plan as plain values, fit for JSON."""
        return {
            "machine": self.machine.name,
            "target": self.target.name,
            "memory_bytes": self.target.memory_bytes,
            "mode": self.mode,
            "micro_batch": self.micro_batch,
            "accumulation": self.options.accumulation,
            "verdict": self.verdict,
            "probability": round(self.probability, 4),
            "binding": self.binding,
            "bytes_per_ipu": self.bytes_per_ipu,
            "low_bytes": self.low_bytes,
            "high_bytes": self.high_bytes,
            "ipus": [
                {
                    "ipu": memory.ipu,
                    "stages": list(memory.stages),
                    "total_bytes": memory.total_bytes,
                    "error_bytes": memory.error_bytes,
                    **memory.parts,
                }
                for memory in self.ipus
            ],
            "stages": dict(self.stages),
            "least_ipus": self.least_ipus,
            **self._name_fitting(),
            **self._tell_speed(),
            "remedies": [remedy.to_dict() for remedy in self.remedies],
            "outside": list(self.outside),
            "not_counted": list(self.not_counted),
        }

    def _name_fitting(self) -> Dict[str, Any]:
        machine = self.smallest_machine
        return {
            "fitting_ipus": None if self.fitting is None else self.fitting.num_ipus,
            "smallest_machine": None if machine is None else machine.name,
        }

    def _tell_speed(self) -> Dict[str, Any]:
        if not self.has_speed:
            return {"samples_per_second": None}
        speed = self.forecast
        return {
            "samples_per_second": speed.samples_per_second,
            "samples_per_second_low": speed.low,
            "samples_per_second_high": speed.high,
            "replicas": speed.replicas,
            "pipeline_efficiency": speed.efficiency,
            "balance": speed.balance,
            "speed_limit": speed.limit,
            "seconds_per_step": dict(speed.seconds),
            "scaling": [dict(row.__dict__) for row in self.scaling],
            "pays_up_to": self.pays_up_to,
        }

    def __str__(self) -> str:
        return format_plan(self)

    _repr_html_ = show_as_page("porting.planning.plan_page:write_plan_page")
