"""This module lists remedies for a step that does not fit, in the order to try them, each with what it buys and costs.

First what costs nothing or little (half precision, a smaller micro-batch), then what costs time (recomputation), then
what costs transfers in every step (state off the chip), slower products (available memory, serialized products), and
last what costs more IPUs (a pipeline). Plans show them, and the warning of a step that does not fit takes the first.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ..diagnostics import join_names
from ..options import PortOptions
from .memory_model import Layout, measure_ipus
from .split import Splitter
from .step_memory import StepMemory

__all__ = ["Remedy", "choose_remedies", "list_first_remedy", "list_remedies"]

_PIPELINES = (2, 4, 8, 16)
_MOST_BOUNDARIES = 48
_SHARES = (0.3, 0.15, 0.1)
_PARTS = (2, 4, 8, 16)
# a remedy, or more IPUs, must save at least 5 %
_WORTH_IT = 0.95


@dataclass(frozen=True)
class Remedy:
    """A change and its effect: the bytes of the fullest IPU with it alone, and with all remedies before it as well.

    `change` says what to write, `time` what it costs, and `num_ipus` how many IPUs a replica has then. `options` are
    the changes of `PortOptions`.
    """

    name: str
    change: str
    alone_bytes: int
    together_bytes: int
    num_ipus: int
    options: Mapping[str, object]
    time: str = ""


class _Change(NamedTuple):
    """A change: what it is called, what to write, what of `PortOptions` and of the layout, and what it costs."""

    name: str
    words: str
    options: Dict[str, object]
    layout: Dict[str, Any]
    time: str


_Propose = Callable[[StepMemory, Layout, PortOptions, int], Optional[_Change]]


def list_remedies(step: StepMemory, layout: Layout, options: PortOptions, *, limit: int) -> Tuple[Remedy, ...]:
    """Return all remedies for a step whose fullest IPU may hold `limit` bytes.

    Each is chosen on top of those before it; the pipeline is the shortest with which it fits, or else the longest.
    """
    return tuple(_iter_remedies(step, layout, options, limit, _LADDER))


def list_first_remedy(step: StepMemory, layout: Layout, options: PortOptions, *, limit: int) -> Tuple[Remedy, ...]:
    """Return the first cheap remedy that saves at least 5 % by itself, or none."""
    enough = _WORTH_IT * _measure_fullest(step, layout)
    cheap = _iter_remedies(step, layout, options, limit, _CHEAP)
    return tuple(itertools.islice((remedy for remedy in cheap if remedy.alone_bytes < enough), 1))


def choose_remedies(step: StepMemory, layout: Layout, options: PortOptions, *, limit: int) -> PortOptions:
    """Return the options with the remedies that are enough for `limit`, or with all of them if they are not.

    The first ones of the ladder are taken until it fits. Then spare memory is spent back: what costs the most is left
    out again where the others are enough.
    """
    if _measure_fullest(step, layout) <= limit:
        return options
    chosen: List[_Propose] = []
    found: List[Remedy] = []
    for propose in _LADDER:
        chosen.append(propose)
        found = list(_iter_remedies(step, layout, options, limit, chosen))
        if found and found[-1].together_bytes <= limit:
            break
    for propose in reversed(list(chosen)) if found and found[-1].together_bytes <= limit else ():
        fewer = [other for other in chosen if other is not propose]
        again = list(_iter_remedies(step, layout, options, limit, fewer))
        # more IPUs in the place of a remedy are nothing saved
        if again and again[-1].together_bytes <= limit and again[-1].num_ipus <= found[-1].num_ipus:
            chosen, found = fewer, again
    changes: Dict[str, Any] = {name: value for remedy in found for name, value in remedy.options.items()}
    suggested = options.replace(**changes)
    if not changes.get("stages"):
        return suggested
    return suggested.replace(accumulation=max(suggested.accumulation, suggested.least_accumulation))


def _iter_remedies(
    step: StepMemory, layout: Layout, options: PortOptions, limit: int, proposals: Sequence[_Propose]
) -> Iterator[Remedy]:
    together = layout
    for propose in proposals:
        change = propose(step, together, options, limit)
        if change is None:
            continue
        changed = replace(together, **change.layout)
        if together is not layout and _measure_fullest(step, changed) >= _measure_fullest(step, together):
            continue
        together = changed
        yield Remedy(
            name=change.name,
            change=change.words,
            alone_bytes=_measure_fullest(step, replace(layout, **change.layout)),
            together_bytes=_measure_fullest(step, together),
            num_ipus=together.num_ipus,
            options=change.options,
            time=change.time,
        )


def _measure_fullest(step: StepMemory, layout: Layout) -> int:
    return max(memory.total_bytes for memory in measure_ipus(step, layout))


# -- one by one --------------------------------------------------------------------------------------------------------


def _halve_precision(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    is_half = not any(info.dtype in (torch.float32, torch.float64) for info in step.parameters)
    if options.precision == "float16" or is_half:
        return None
    words = '`precision="float16"`: weights and activations in half, accumulators and optimizer state stay float32'
    return _Change("float16", words, {"precision": "float16"}, {"halves": True}, "down to a fourth")


def _shrink_micro_batch(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    if step.micro_batch == 1:
        return None
    scale = {"scale": 1.0 / step.micro_batch}
    if step.mode != "training":
        return _Change("micro-batch 1", "`micro_batch=1`", {"micro_batch": 1}, scale, "smaller products")
    accumulation = options.accumulation * step.micro_batch
    words = f"`micro_batch=1, accumulation={accumulation}`: the same step, statistics of BatchNorm change"
    changes: Dict[str, object] = {"micro_batch": 1, "accumulation": accumulation}
    return _Change("micro-batch 1", words, changes, {**scale, "accumulates": True}, "smaller products")


def _recompute_blocks(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    if options.recompute or step.mode != "training":
        return None
    trials = []
    for names in (*_iter_chains(step, list(step.called)), *_iter_alike(step)):
        changes: Dict[str, Any] = {"marks": step.ends_of(names), "recomputes": True}
        trials.append((_measure_fullest(step, replace(layout, **changes)), names, changes))
    least, names, changes = min(trials, key=lambda trial: trial[:2], default=(0, [], {}))
    if not trials or least >= _measure_fullest(step, layout):
        return None
    listed = join_names(names, quote='"')
    words = f"`recompute=[{listed}]`: the forward pass is computed a second time, about a third more work"
    return _Change("recomputation", words, {"recompute": list(names)}, changes, "+ 33 %")


def _move_state_off_chip(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    if not layout.state_bytes or layout.state_off_chip or step.mode != "training":
        return None
    words = '`optimizer_state="off_chip"`'
    changes: Dict[str, object] = {"optimizer_state": "off_chip"}
    layouts: Dict[str, Any] = {"state_off_chip": True}
    if options.replicas > 1:
        words = '`optimizer_state="off_chip", shard_optimizer_state=True`'
        changes["shard_optimizer_state"] = True
        layouts["state_shards"] = options.replicas
    words += ": it comes and goes once in a step"
    return _Change("state off chip", words, changes, layouts, "a transfer a step")


def _limit_products(step: StepMemory, layout: Layout, _options: PortOptions, limit: int) -> Optional[_Change]:
    """Propose the largest share of memory for a product with which it fits, or the least one."""
    before = _measure_fullest(step, layout)
    found = None
    for share in _SHARES:
        if layout.proportions and share >= max(layout.proportions):
            continue
        proportions = (share,) * layout.num_ipus
        size = _measure_fullest(step, replace(layout, proportions=proportions))
        if size < before:
            found = _Change(
                "available memory",
                f"`available_memory={share}`: products take no more of an IPU's memory, and more cycles",
                {"available_memory": share},
                {"proportions": (share,) * 64},
                "slower products",
            )
        if size <= limit:
            break
    return found


def _serialize_products(step: StepMemory, layout: Layout, _options: PortOptions, limit: int) -> Optional[_Change]:
    """Propose to compute the largest product of a Linear module in parts: the fewest with which it fits."""
    linear = [op for op in step.operations if op.is_product and step.called.get(op.module_path) == "Linear"]
    largest = max(linear, key=lambda op: op.result_bytes + op.operand_bytes, default=None)
    if largest is None or layout.serialized.keys() & set(largest.parameters):
        return None
    # a head has the embedding's weight, which bears the embedding's name
    rows = next(info.shape[0] for info in step.parameters if info.name in largest.parameters)
    before, found, module = _measure_fullest(step, layout), None, largest.module_path
    for parts in (parts for parts in _PARTS if rows % parts == 0):
        serialized = {**layout.serialized, **dict.fromkeys(largest.parameters, parts)}
        size = _measure_fullest(step, replace(layout, serialized=serialized))
        if size < before:
            words = f'`serialize={{"{module}": {parts}}}`: its product is computed in {parts} parts'
            found = _Change(
                "serialized product", words, {"serialize": {module: parts}}, {"serialized": serialized}, "slower there"
            )
        if size <= limit:
            break
    return found


def _cut_pipeline(step: StepMemory, layout: Layout, options: PortOptions, limit: int) -> Optional[_Change]:
    if len(layout.begins) > 1:
        return None
    best: Optional[_Change] = None
    least = _measure_fullest(step, layout)
    splitter = Splitter(step, layout)
    for num_ipus in _PIPELINES:
        if not splitter.may_fit(num_ipus, limit) and num_ipus < _PIPELINES[-1]:
            continue
        split = splitter.split(num_ipus, limit)
        if split is None:
            break
        listed = ", ".join(f'"{name}": {ipu}' for name, ipu in split.stages.items())
        words = f"`stages={{{listed}}}`: {num_ipus} IPUs"
        changes: Dict[str, Any] = {"begins": split.begins, "ipus": split.ipus}
        if step.mode == "training":
            words += f", an accumulation of at least {options.replace(stages=split.stages).least_accumulation}"
            changes.update(recomputes=True, accumulates=True)
        size = _measure_fullest(step, replace(layout, **changes))
        if size < _WORTH_IT * least:
            name = f"pipeline of {num_ipus} IPUs"
            best, least = _Change(name, words, {"stages": dict(split.stages)}, changes, f"{num_ipus} x the IPUs"), size
        if size <= limit:
            break
    return best


# what a warning proposes: first what changes no number
_CHEAP: Tuple[_Propose, ...] = (_shrink_micro_batch, _halve_precision)
_LADDER: Tuple[_Propose, ...] = (
    _halve_precision,
    _shrink_micro_batch,
    _recompute_blocks,
    _move_state_off_chip,
    _limit_products,
    _serialize_products,
    _cut_pipeline,
)


# -- modules whose outputs may be kept ---------------------------------------------------------------------------------


def _iter_chains(step: StepMemory, called: Sequence[str]) -> Iterator[List[str]]:
    """List those of the modules `called` that are at one depth of the model, for each depth."""
    for depth in range(1 + max((name.count(".") for name in called), default=0)):
        names = [name for name in called if name.count(".") == depth and name in step.begins]
        if 1 < len(names) <= _MOST_BOUNDARIES:
            yield names


def _iter_alike(step: StepMemory) -> Iterator[List[str]]:
    """List the modules of one class that contain others and are in none of their own class: blocks, layers."""
    for kind in dict.fromkeys(step.called.values()):
        names = [name for name, own in step.called.items() if own == kind]
        outer = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
        inner = [name for name in outer if any(other.startswith(f"{name}.") for other in step.called)]
        if 1 < len(inner) <= _MOST_BOUNDARIES:
            yield inner
