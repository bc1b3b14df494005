"""This module makes plans: whether a training step fits a machine, where to cut it, and how fast it will be.

Users call `porting.plan` and `porting.memory_report` before there is any hardware; `porting plan` prints plans.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from .. import simulator
from ..adapters.loss_terms import Losses
from ..api import PortedModel, to_ipu
from ..diagnostics import BatchError, OptionError, PortingWarning
from ..machines import DEFAULT, Machine, find_machine
from ..model_copies import copy_without_values
from ..module_attributes import materialise_lazy_modules
from ..options import PortOptions
from ..structure import Structure, make_call_arguments
from ..torch_insides.trees import tree_leaves, tree_map
from .layouts import cut_stages, find_limit, make_layout
from .memory_model import measure_ipus
from .plan_record import Plan
from .recomputation import drop_policy, resolve_recompute, sketch_recompute
from .remedies import Remedy, list_remedies
from .step_memory import StepMemory
from .step_walk import look_at_step

__all__ = ["make_plan", "memory_report", "plan"]


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
    plain = drop_policy(options).replace(memory="ignore")
    # a port converts its model where the precision asks for it
    model, loss, optimizer = copy_without_values(model, loss, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PortingWarning)
        ported = to_ipu(model, loss, optimizer=optimizer, options=plain, device="sim", **settings)
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
    limit = find_limit(machine.chip)
    layout = sketch_recompute(step, options, make_layout(step, options, optimizer, machine.chip))
    layout, stages = cut_stages(step, layout, options, machine, ipus, limit)
    options, layout = resolve_recompute(step, options, layout)
    planned = options.replace(stages=stages or None)
    if step.mode == "training":
        planned = planned.replace(accumulation=max(planned.accumulation, planned.least_accumulation))
    return Plan(
        machine=machine,
        ipus=measure_ipus(step, layout),
        stages=stages,
        remedies=tuple(find_remedies(step, layout, planned, machine, limit=limit, loader_rate=loader_rate)),
        options=planned,
        step=step,
        layout=layout,
        loader_rate=loader_rate,
    )


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
