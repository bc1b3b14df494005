"""This module is the ladder: what may be changed of a step that does not fit, one by one, in order of what it costs.

The remedies climb it, each on top of those before, and then spend back what memory is to spare.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import torch

from ..diagnostics import join_names
from ..options import PortOptions
from .memory_model import Layout, measure_fullest
from .recomputation import iter_kept, measure_most_waiting, resolve_recompute, spell_budget
from .split import Split, Splitter
from .step_memory import StepMemory, count_device_bytes

__all__ = ["CHEAP", "LADDER", "WORTH_IT", "Change", "Propose", "spend_spare"]

WORTH_IT = 0.95
"""A remedy, or more IPUs, must save at least 5 %."""

_PIPELINES = (2, 4, 8, 16)
_SHARES = (0.3, 0.15, 0.1)
_PARTS = (2, 4, 8, 16)


class Change(NamedTuple):
    """A change: what it is called, what to write, what of `PortOptions` and of the layout.

    `unsure` is the part of the change of time that is no more than a guess: nothing that was published tells it.
    """

    name: str
    words: str
    options: Dict[str, object]
    layout: Dict[str, Any]
    unsure: float = 0.0


Propose = Callable[[StepMemory, Layout, PortOptions, int], Optional[Change]]


def _halve_precision(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[Change]:
    is_half = not any(info.dtype in (torch.float32, torch.float64) for info in step.parameters)
    if options.precision == "float16" or is_half:
        return None
    words = '`precision="float16"`: weights and activations in half, accumulators and optimizer state stay float32'
    # all speeds that the throughput model was fitted to are of half precision
    return Change("float16", words, {"precision": "float16"}, {"halves": True}, unsure=0.3)


def _shrink_micro_batch(step: StepMemory, _layout: Layout, options: PortOptions, _limit: int) -> Optional[Change]:
    if step.micro_batch == 1:
        return None
    changes, layouts = _change_micro_batch(step, options, 1)
    words = "`micro_batch=1`"
    if step.mode == "training":
        words = (
            f"`micro_batch=1, accumulation={changes['accumulation']}`: the same step, statistics of BatchNorm change"
        )
    # products that are smaller may reach less of the peak
    return Change("micro-batch 1", words, changes, layouts, unsure=0.5)


def _change_micro_batch(
    step: StepMemory, options: PortOptions, micro_batch: int
) -> Tuple[Dict[str, object], Dict[str, Any]]:
    """Return what changes of options and layout with another micro-batch and the same step."""
    changes: Dict[str, object] = {"micro_batch": micro_batch}
    layouts: Dict[str, Any] = {"scale": micro_batch / step.micro_batch}
    if step.mode == "training":
        # inference accumulates nothing
        accumulation = options.accumulation * (step.micro_batch // micro_batch)
        changes["accumulation"] = accumulation
        layouts["accumulates"] = accumulation > 1
    return changes, layouts


def _recompute_blocks(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[Change]:
    """Propose to keep the few outputs with which it takes the least."""
    if options.recompute or step.mode != "training":
        return None
    trials = [
        (measure_fullest(step, replace(layout, **_keep_outputs(step, names))), names) for names in iter_kept(step)
    ]
    least, names = min(trials, default=(0, []))
    if not trials or least >= measure_fullest(step, layout):
        return None
    listed = join_names(names, quote='"')
    words = f"`recompute=[{listed}]`: their outputs are kept, and all else is computed a second time"
    return Change("recomputation", words, {"recompute": list(names)}, _keep_outputs(step, names))


def _keep_outputs(step: StepMemory, names: Sequence[str]) -> Dict[str, Any]:
    return {"marks": step.ends_of(names), "recomputes": True}


def _shard_state(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[Change]:
    if options.replicas == 1 or options.shard_optimizer_state or not layout.state_bytes or step.mode != "training":
        return None
    words = f"`shard_optimizer_state=True`: each of {options.replicas} replicas has a share"
    # gradients are scattered and weights gathered, which passes the links as often as without
    return Change("state in shards", words, {"shard_optimizer_state": True}, {"state_shards": options.replicas})


def _move_state_off_chip(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[Change]:
    if not layout.state_bytes or layout.state_off_chip or step.mode != "training":
        return None
    words = '`optimizer_state="off_chip"`: it comes and goes once in a step'
    return Change("state off chip", words, {"optimizer_state": "off_chip"}, {"state_off_chip": True})


def _limit_products(step: StepMemory, layout: Layout, _options: PortOptions, limit: int) -> Optional[Change]:
    """Propose the largest share of memory for a product with which it fits, or the least one."""
    before = measure_fullest(step, layout)
    found = None
    for share in _SHARES:
        if layout.proportions and share >= max(layout.proportions):
            continue
        proportions = (share,) * layout.num_ipus
        size = measure_fullest(step, replace(layout, proportions=proportions))
        if size < before:
            found = Change(
                "available memory",
                f"`available_memory={share}`: products take no more of an IPU's memory, and more cycles",
                {"available_memory": share},
                {"proportions": (share,) * 64},
                unsure=1.0,
            )
        if size <= limit:
            break
    return found


def _serialize_products(step: StepMemory, layout: Layout, options: PortOptions, limit: int) -> Optional[Change]:
    """Propose to compute the largest product of a Linear module in parts: the fewest with which it fits."""
    linear = [op for op in step.operations if op.is_product and step.called.get(op.module_path) == "Linear"]
    largest = max(linear, key=lambda op: op.result_bytes + op.operand_bytes, default=None)
    if largest is None or layout.serialized.keys() & set(largest.parameters):
        return None
    # a head has the embedding's weight, which bears the embedding's name
    rows = next(info.shape[0] for info in step.parameters if info.name in largest.parameters)
    before, found, module = measure_fullest(step, layout), None, largest.module_path
    for parts in (parts for parts in _PARTS if rows % parts == 0):
        serialized = {**layout.serialized, **dict.fromkeys(largest.parameters, parts)}
        size = measure_fullest(step, replace(layout, serialized=serialized))
        if size < before:
            words = f'`serialize={{"{module}": {parts}}}`: its product is computed in {parts} parts'
            serialize: Dict[str, object] = {"serialize": {**(options.serialize or {}), module: parts}}
            found = Change("serialized product", words, serialize, {"serialized": serialized}, unsure=1.0)
        if size <= limit:
            break
    return found


def _serialize_lookup(step: StepMemory, layout: Layout, options: PortOptions, limit: int) -> Optional[Change]:
    """Propose to look the largest embedding up in parts, so that its gradient is there in parts, too."""
    tables = {
        op.parameters[0]: op.module_path
        for op in step.operations
        if len(op.parameters) == 1 and step.called.get(op.module_path) == "Embedding"
    }
    # the gradient of a tied weight is there as a whole for its product
    alone = [info for info in step.parameters if info.name in tables and step.num_uses[info.name] == 1]
    weights = [info for info in alone if info.name not in layout.serialized]
    largest = max(weights, key=lambda info: count_device_bytes(info.shape, info.dtype), default=None)
    if largest is None or step.mode != "training":
        return None
    before, found, module = measure_fullest(step, layout), None, tables[largest.name]
    for parts in (parts for parts in _PARTS if largest.shape[0] % parts == 0):
        serialized = {**layout.serialized, largest.name: parts}
        size = measure_fullest(step, replace(layout, serialized=serialized))
        if size < before:
            words = f'`serialize={{"{module}": {parts}}}`: its rows are looked up in {parts} parts'
            serialize: Dict[str, object] = {"serialize": {**(options.serialize or {}), module: parts}}
            found = Change("serialized lookup", words, serialize, {"serialized": serialized}, unsure=1.0)
        if size <= limit:
            break
    return found


def _return_less(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[Change]:
    if step.mode != "training" or options.output_mode in ("default", "final") or options.keep_gradients:
        return None
    words = '`output_mode="final"`: a call returns the outputs of its last micro-batch alone'
    changes: Dict[str, object] = {"output_mode": "final", "output_every": 1}
    return Change("output mode", words, changes, {"outputs": "final", "outputs_every": 1})


def _cut_pipeline(step: StepMemory, layout: Layout, options: PortOptions, limit: int) -> Optional[Change]:
    if len(layout.begins) > 1:
        return None
    splitter = Splitter(step, layout, accumulation=options.accumulation)
    fitting = (splitter.fit(num_ipus, limit) for num_ipus in _PIPELINES)
    split = next((split for split in fitting if split is not None), None) or _find_least(splitter, limit)
    if split is None or split.num_bytes >= WORTH_IT * measure_fullest(step, layout):
        return None
    return _propose_stages(step, options, split)


def _find_least(splitter: Splitter, limit: int) -> Optional[Split]:
    """Return the stages that hold the least where none fit: on more IPUs if those save at least 5 %."""
    best, least = None, math.inf
    for num_ipus in _PIPELINES:
        has_room = splitter.has_room(num_ipus, limit) or num_ipus == _PIPELINES[-1]
        split = splitter.split(num_ipus, limit) if has_room and num_ipus <= splitter.most_ipus else None
        if split is not None and split.num_bytes < least:
            best, least = split, WORTH_IT * split.num_bytes
    return best


def _propose_stages(step: StepMemory, options: PortOptions, split: Split) -> Change:
    num_ipus = max(split.ipus) + 1
    listed = ", ".join(f'"{name}": {ipu}' for name, ipu in split.stages.items())
    words = f"`stages={{{listed}}}`: {num_ipus} IPUs"
    changes: Dict[str, Any] = {"begins": split.begins, "ipus": split.ipus}
    if step.mode == "training":
        words += f", an accumulation of at least {options.replace(stages=split.stages).least_accumulation}"
        changes.update(recomputes=True, accumulates=True)
    written: Dict[str, object] = {"stages": dict(split.stages)}
    if isinstance(options.available_memory, tuple):
        written["available_memory"] = options.available_memory[0]
    return Change(f"pipeline of {num_ipus} IPUs", words, written, changes)


# what a warning proposes: first what changes no number
CHEAP: Tuple[Propose, ...] = (_shrink_micro_batch, _halve_precision)
LADDER: Tuple[Propose, ...] = (
    _return_less,
    _halve_precision,
    _shrink_micro_batch,
    _recompute_blocks,
    _shard_state,
    _move_state_off_chip,
    _limit_products,
    _serialize_products,
    _serialize_lookup,
    _cut_pipeline,
)


# -- spare memory ------------------------------------------------------------------------------------------------------


def spend_spare(
    step: StepMemory, layout: Layout, options: PortOptions, changes: Dict[str, Any], limit: int
) -> Dict[str, Any]:
    """Return `changes` of `options`, whose layout is `layout`, in the mildest form with which the step still fits.

    The micro-batch grows as far as there is room, and then more outputs are kept: their budget is shorter than a list.
    """
    if "micro_batch" in changes:
        for count in (count for count in range(step.micro_batch, 1, -1) if step.micro_batch % count == 0):
            more, layouts = _change_micro_batch(step, options, count)
            layouts["accumulates"] |= len(layout.begins) > 1
            if measure_fullest(step, replace(layout, **layouts)) <= limit:
                changes, layout = {**changes, **more}, replace(layout, **layouts)
                break
    if "recompute" in changes:
        text = spell_budget(measure_most_waiting(step, layout), limit - measure_fullest(step, layout))
        _names, kept = resolve_recompute(step, options.replace(recompute=text), layout)
        if kept.marks != layout.marks and measure_fullest(step, kept) <= limit:
            changes = {**changes, "recompute": text}
    return changes
