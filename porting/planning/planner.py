"""This module makes plans: whether a training step fits a machine, where to cut it, and how fast it will be.

Users call `porting.plan` and `porting.memory_report` before there is any hardware; `porting plan` prints plans.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from .. import simulator
from ..adapters.loss_terms import Losses
from ..api import PortedModel, to_ipu
from ..diagnostics import BatchError, Finding, OptionError, PortingWarning
from ..machines import DEFAULT, Chip, Machine, find_machine
from ..model_copies import copy_without_values
from ..module_attributes import materialise_lazy_modules
from ..options import PortOptions
from ..structure import Structure, make_call_arguments
from ..support.late_pages import show_as_page
from ..torch_insides.trees import tree_leaves, tree_map
from .evidence import iter_reasons_outside
from .layouts import cut_stages, make_layout
from .memory_look import FITS
from .memory_model import Layout, StageMemory, measure_ipus, measure_resident
from .plan_text import format_mb, format_plan
from .remedies import Remedy, choose_remedies, list_remedies
from .step_memory import StepMemory
from .step_walk import look_at_step
from .throughput import Forecast, Scale, forecast, list_scaling

__all__ = ["Plan", "make_plan", "memory_report", "plan"]

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
        return choose_remedies(self.step, self.layout, self.options, limit=_find_limit(self.target))

    @functools.cached_property
    def forecast(self) -> Forecast:
        """The speed on the machine."""
        return forecast(**self._pace)

    @functools.cached_property
    def scaling(self) -> Tuple[Scale, ...]:
        """The speed on 1, 2, 4, ... replicas, also more than the machine has."""
        return tuple(list_scaling(**self._pace))

    @property
    def _pace(self) -> Dict[str, Any]:
        """What a speed follows from: the memory as it is planned, also where a report has corrected it."""
        return {
            "step": self.step,
            "layout": self.layout,
            "memories": measure_ipus(self.step, self.layout),
            "machine": self.machine,
            "accumulation": self.options.accumulation,
            "loader_rate": self.loader_rate,
        }

    @property
    def least_ipus(self) -> int:
        """The IPUs that have room for the weights and what belongs to them."""
        return math.ceil(measure_resident(self.step, self.layout)[-1] / self.target.memory_bytes) or 1

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
        return max(self.fullest.parts.items(), key=lambda part: part[1])[0]

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
    def finding(self) -> Optional[Finding]:
        """M001 with the remedies where it does not fit, else None."""
        if self.verdict != "does not fit":
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
        speed = self.forecast
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
            "remedies": [dict(remedy.__dict__, options=dict(remedy.options)) for remedy in self.remedies],
            "outside": list(self.outside),
            "not_counted": list(self.not_counted),
        }

    __str__ = format_plan
    _repr_html_ = show_as_page("porting.planning.plan_page:write_plan_page")


def plan(
    model: nn.Module,
    loss: Optional[Losses] = None,
    example: Structure = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    options: Optional[PortOptions] = None,
    machine: str = "bow-pod16",
    *,
    ipus: Optional[int] = None,
    mode: str = "training",
    loader_rate: Optional[float] = None,
    **settings: Any,
) -> Plan:
    """Plan the training of `model` on a machine, without computing, compiling or changing anything.

    `example` is a batch, whose values do not matter; of a list of batches the largest is planned for. Its rows are
    those of one micro-batch, or of a combined batch of `options`. The model may be on torch's "meta" device.
    `machine` is one of `porting.machines`, or a user's file. A replica takes `ipus` IPUs, or as few as it fits on.
    `loader_rate` are the samples a second of the user's loader; `settings` are others of `to_ipu`.

    Raises what `memory_report` raises.

    >>> model = nn.Linear(400, 2)
    >>> planned = plan(model, nn.CrossEntropyLoss(), (torch.ones(8, 400), torch.zeros(8, dtype=torch.int64)))
    >>> planned.verdict, planned.machine.num_chips, planned.forecast.replicas
    ('fits', 16, 16)
    """
    found = find_machine(machine)
    options = PortOptions() if options is None else options
    if ipus is not None and options.stages:
        raise OptionError.at_caller(
            "P002", message="`ipus` and `stages` both say how many IPUs a replica has", help="leave one of them out"
        )
    # a port converts its model where the precision asks for it
    model, loss, optimizer = copy_without_values(model, loss, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PortingWarning)
        ported = to_ipu(
            model, loss, optimizer=optimizer, options=options.replace(memory="ignore"), device="sim", **settings
        )
    batch = _choose_largest(example)
    step, trained = _look_at(ported, batch, mode, takes_any=True)
    return make_plan(step, options, trained, found, ipus=ipus, loader_rate=loader_rate)


def memory_report(ported: PortedModel, batch: Structure, *, target: str = DEFAULT, mode: str = "training") -> Plan:
    """Plan the step of `ported` for its memory on each IPU, without computing or compiling it.

    `batch` is a combined batch, a tuple of positional arguments or a dictionary of named ones, as for a call; its
    values do not matter. With `mode="inference"` it is that of `ported.inference()`, without labels. `target` is one
    of the chips or machines of `porting.machines`. The step is captured once, on tensors without values, and the terms
    are those of `porting.planning.memory_model`.

    Raises OptionError P002 for an unknown target, P007 for stages of unknown modules, BatchError B004 for a batch that
    cannot be cut, CaptureError for a model that no static graph can hold, PortingError M002 for one with a branch.

    >>> import porting
    >>> ported = porting.to_ipu(torch.nn.Linear(400, 2), torch.nn.CrossEntropyLoss(), device="sim")
    >>> report = porting.memory_report(ported, (torch.ones(8, 400), torch.zeros(8, dtype=torch.int64)))
    >>> report.verdict, report.ipus[0].weight_bytes
    ('fits', 3208)
    """
    found = find_machine(target)
    step, optimizer = _look_at(ported, batch, mode)
    # with the stages that the port has
    return make_plan(step, ported.options, optimizer, found, ipus=None if ported.options.stages else 1)


def make_plan(
    step: StepMemory,
    options: PortOptions,
    optimizer: Optional[torch.optim.Optimizer],
    machine: Machine,
    *,
    ipus: Optional[int] = None,
    loader_rate: Optional[float] = None,
    find_remedies: Callable[..., Sequence[Remedy]] = list_remedies,
) -> Plan:
    """Plan a step that was looked at; `ipus` is the number of IPUs of a replica where `options` have no stages."""
    limit = _find_limit(machine.chip)
    layout = make_layout(step, options, optimizer, machine.chip)
    layout, stages = cut_stages(step, layout, options, machine, ipus, limit)
    planned = options.replace(stages=stages or None)
    if step.mode == "training":
        planned = planned.replace(accumulation=max(planned.accumulation, planned.least_accumulation))
    remedies = tuple(find_remedies(step, layout, planned, limit=limit))
    return Plan(
        machine=machine,
        ipus=measure_ipus(step, layout),
        stages=stages,
        remedies=remedies,
        options=planned,
        step=step,
        layout=layout,
        loader_rate=loader_rate,
    )


def _find_limit(chip: Chip) -> int:
    """Return the bytes that an IPU is planned to hold at most."""
    return int(FITS * chip.memory_bytes)


# -- the step ----------------------------------------------------------------------------------------------------------


def _look_at(
    ported: PortedModel, batch: Structure, mode: str, *, takes_any: bool = False
) -> Tuple[StepMemory, Optional[torch.optim.Optimizer]]:
    """Look at the step of a port; a batch that is none of a call is one micro-batch if it `takes_any`."""
    if mode not in ("training", "inference"):
        raise OptionError.of("P002", message=f"`mode` is {mode!r}", help="use 'training' or 'inference'")
    port, options = ported.port, ported.options
    is_training = mode == "training"
    rows = options.samples_per_call if is_training else options.samples_per_inference_call
    args, kwargs = _cut_micro_batch(batch, rows // options.micro_batch, options.micro_batch, takes_any=takes_any)
    # captured by the simulator's rules, whatever the backend of the port is
    wrapped = port.wrapped.for_backend(simulator)
    forward = wrapped if is_training else wrapped.for_inference()
    materialise_lazy_modules(forward, args, kwargs)
    return look_at_step(port.model, forward, args, kwargs, options, mode=mode), ported.port_optimizer.device


def _choose_largest(example: Structure) -> Structure:
    """Return the batch with the most elements of a list of batches, each of which is a tuple or a dictionary."""
    if not isinstance(example, list) or not all(isinstance(item, (tuple, dict)) for item in example) or not example:
        return example
    return max(example, key=lambda batch: sum(t.numel() for t in tree_leaves(batch) if isinstance(t, torch.Tensor)))


def _cut_micro_batch(
    batch: Structure, num_parts: int, micro_batch: int, *, takes_any: bool
) -> Tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of one run of `forward`; a `micro_batch` of 1 leaves its rows to the batch, as in calls."""
    args, kwargs = make_call_arguments(batch)
    rows = next((t.shape[0] for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()), 1)
    if rows % num_parts or (micro_batch > 1 and rows != num_parts * micro_batch):
        if takes_any and micro_batch in (1, rows):
            return args, kwargs
        raise BatchError.at_caller(
            "B004",
            message=f"{rows} rows cannot be cut into {num_parts} micro-batches"
            + (f" of {micro_batch}" if micro_batch > 1 else ""),
            help="pass a combined batch, as a call takes it: micro-batch x accumulation x replicas x device iterations",
        )

    def cut(item: object) -> Any:
        if not isinstance(item, torch.Tensor) or not item.dim() or item.shape[0] != rows:
            return item
        return item[: rows // num_parts].detach()

    micro: Tuple[Sequence[Any], Mapping[str, Any]] = tree_map(cut, (list(args), kwargs))
    return micro
