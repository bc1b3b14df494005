"""List remedies for a step that does not fit, in the order to try them, each with the bytes that it would save.

`memory_report` uses it. Remedies that cost little come first (a smaller micro-batch, half precision), then those
that cost time (recomputation) and more IPUs (a pipeline), and last those that cost transfers in every step (state off
the chip).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..diagnostics import list_names
from ..options import PortOptions
from .memory_model import Layout, measure_ipus
from .step_memory import StepMemory

__all__ = ["Remedy", "list_first_remedy", "list_remedies"]

_PIPELINES = (2, 4, 8, 16)
_MOST_BOUNDARIES = 48
# a remedy, or more IPUs, must save at least 5 %
_WORTH_IT = 0.95


@dataclass(frozen=True)
class Remedy:
    """A change and its effect: the bytes of the fullest IPU with it alone, and with all remedies before it as well.

    `change` is the code to write, `num_ipus` the number of IPUs that a replica has then. `options` are the changes of
    `PortOptions`; a change that they cannot express is described by `change` alone.
    """

    name: str
    change: str
    alone_bytes: int
    together_bytes: int
    num_ipus: int
    options: Mapping[str, object]


class _Change(NamedTuple):
    """A change: its name, the code to write, and the changes of `PortOptions` and of the layout."""

    name: str
    words: str
    options: Dict[str, object]
    layout: Dict[str, Any]


_Propose = Callable[[StepMemory, Layout, PortOptions, int], Optional[_Change]]


def list_remedies(step: StepMemory, layout: Layout, options: PortOptions, *, limit: int) -> Tuple[Remedy, ...]:
    """Return all remedies for a step whose fullest IPU may hold `limit` bytes.

    Each is chosen on top of those before it; the pipeline is the shortest with which it fits, or else the longest.
    """
    return tuple(_iter_remedies(step, layout, options, limit))


def list_first_remedy(step: StepMemory, layout: Layout, options: PortOptions, *, limit: int) -> Tuple[Remedy, ...]:
    """Return the first cheap remedy that saves at least 5 % by itself, or none."""
    enough = _WORTH_IT * _measure_fullest(step, layout)
    cheap = _iter_remedies(step, layout, options, limit, proposals=(_shrink_micro_batch, _halve_precision))
    return tuple(itertools.islice((remedy for remedy in cheap if remedy.alone_bytes < enough), 1))


def _iter_remedies(
    step: StepMemory, layout: Layout, options: PortOptions, limit: int, *, proposals: Sequence[_Propose] = ()
) -> Iterator[Remedy]:
    together = layout
    for propose in proposals or (
        _shrink_micro_batch,
        _halve_precision,
        _recompute_blocks,
        _cut_pipeline,
        _move_state_off_chip,
    ):
        change = propose(step, together, options, limit)
        if change is None:
            continue
        together = replace(together, **change.layout)
        yield Remedy(
            name=change.name,
            change=change.words,
            alone_bytes=_measure_fullest(step, replace(layout, **change.layout)),
            together_bytes=_measure_fullest(step, together),
            num_ipus=together.num_ipus,
            options=change.options,
        )


def _measure_fullest(step: StepMemory, layout: Layout) -> int:
    return max(memory.total_bytes for memory in measure_ipus(step, layout))


# -- one by one --------------------------------------------------------------------------------------------------------


def _shrink_micro_batch(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    if step.micro_batch == 1:
        return None
    scale = {"scale": 1.0 / step.micro_batch}
    if step.mode != "training":
        return _Change("micro-batch 1", "`micro_batch=1`", {"micro_batch": 1}, scale)
    accumulation = options.accumulation * step.micro_batch
    words = f"`micro_batch=1, accumulation={accumulation}`: the same step, statistics of BatchNorm change"
    changes: Dict[str, object] = {"micro_batch": 1, "accumulation": accumulation}
    return _Change("micro-batch 1", words, changes, {**scale, "accumulates": True})


def _halve_precision(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    if options.precision == "float16":
        return None
    words = '`precision="float16"`: weights and activations in half, accumulators and optimizer state stay float32'
    return _Change("float16", words, {"precision": "float16"}, {"halves": True})


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
    listed = list_names(names, quote='"')
    words = f"`recompute=[{listed}]`: the forward pass is computed a second time, about a third more work"
    return _Change("recomputation", words, {"recompute": list(names)}, changes)


def _cut_pipeline(step: StepMemory, layout: Layout, options: PortOptions, limit: int) -> Optional[_Change]:
    if len(layout.begins) > 1:
        return None
    best: Optional[_Change] = None
    least = _measure_fullest(step, layout)
    for num_ipus in _PIPELINES:
        trial = _find_cut(step, layout, num_ipus)
        if trial is None:
            break
        size, changes, stages = trial
        listed = ", ".join(f'"{name}": {ipu}' for name, ipu in stages.items())
        words = f"`stages={{{listed}}}`: {num_ipus} IPUs"
        if step.mode == "training":
            words += f", an accumulation of at least {2 * len(changes['begins']) - 1}"
        if size < _WORTH_IT * least:
            best, least = _Change(f"pipeline of {num_ipus} IPUs", words, {"stages": stages}, changes), size
        if size <= limit:
            break
    return best


def _move_state_off_chip(step: StepMemory, layout: Layout, options: PortOptions, _limit: int) -> Optional[_Change]:
    if not layout.state_bytes or step.mode != "training":
        return None
    sharded = f", and over {options.replicas} replicas" if options.replicas > 1 else ""
    words = (
        f"optimizer state off the chip{sharded}: PopTorch's `TensorLocations.setOptimizerLocation`, "
        "which PortOptions does not have"
    )
    return _Change("state off chip", words, {}, {"state_off_chip": True, "state_shards": max(1, options.replicas)})


# -- where a step can be cut -------------------------------------------------------------------------------------------


def _iter_chains(step: StepMemory, called: Sequence[str]) -> Iterator[List[str]]:
    """Yield those of the modules `called` that are at one depth of the model, for each depth."""
    for depth in range(1 + max((name.count(".") for name in called), default=0)):
        names = [name for name in called if name.count(".") == depth and name in step.begins]
        if 1 < len(names) <= _MOST_BOUNDARIES:
            yield names


def _iter_alike(step: StepMemory) -> Iterator[List[str]]:
    """Yield the modules of one class that contain others and are in none of their own class: blocks, layers."""
    for kind in dict.fromkeys(step.called.values()):
        names = [name for name, own in step.called.items() if own == kind]
        outer = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
        inner = [name for name in outer if any(other.startswith(f"{name}.") for other in step.called)]
        if 1 < len(inner) <= _MOST_BOUNDARIES:
            yield inner


def _iter_anywhere(step: StepMemory) -> Iterator[List[str]]:
    """Yield modules at all depths, of those that begin at the same operator the outermost, as many as can be tried."""
    by_place: Dict[int, str] = {}
    for name in step.called_once:
        place = step.begins.get(name, 0)
        if place not in by_place or name.count(".") < by_place[place].count("."):
            by_place[place] = name
    names = [by_place[place] for place in sorted(by_place)]
    stride = -(-len(names) // _MOST_BOUNDARIES)
    if len(names) > 1:
        yield names[::stride]


def _find_cut(step: StepMemory, layout: Layout, num_ipus: int) -> Optional[Tuple[int, Dict[str, Any], Dict[str, int]]]:
    """Cut the step into stages on `num_ipus` IPUs; return the fullest IPU's bytes, the layout's changes and the stages.

    None where the step has too few modules.
    """
    found = []
    chains = [names for names in _iter_chains(step, step.called_once) if len(names) > num_ipus]
    for names in chains or _iter_anywhere(step):
        boundaries = {step.begins.get(name, 0): name for name in names if step.begins.get(name, 0)}
        # a module at the end that uses a weight of the first stage again begins a stage more, on IPU 0
        tail = _find_tail(step, names)
        places = sorted(place for place in boundaries if tail is None or place < tail[0])
        changes = _find_best_pipeline(step, layout, places, num_ipus, () if tail is None else tail[:1])
        if changes is not None:
            begins, ipus = changes["begins"], changes["ipus"]
            stages = {boundaries[begin]: ipu for begin, ipu in zip(begins[1:], ipus[1:]) if begin in boundaries}
            if tail is not None:
                stages[tail[1]] = 0
            trial = replace(layout, **changes)
            if _are_weights_at_home(step, trial):
                found.append((_measure_fullest(step, trial), changes, stages))
    return min(found, key=lambda item: item[0], default=None)


def _find_tail(step: StepMemory, names: Sequence[str]) -> Optional[Tuple[int, str]]:
    """Return the last module that uses a weight of the step's first half again, and where it begins."""
    middle = step.begins.get(names[len(names) // 2], -1)
    for module in reversed(step.called_once):
        begin = step.begins.get(module, -1)
        operations = [op for op in step.operations if f"{op.module_path}.".startswith(f"{module}.")]
        uses = {name for operation in operations for name in operation.parameters}
        if begin > middle and any(step.first_uses[name] < middle for name in uses):
            return begin, module
    return None


def _are_weights_at_home(step: StepMemory, layout: Layout) -> bool:
    homes: Dict[str, int] = {}
    begins = (*layout.begins, len(step.operations))
    for stage, (first, end) in enumerate(zip(begins, begins[1:])):
        for operation in step.operations[first:end]:
            for name in operation.parameters:
                if homes.setdefault(name, layout.ipus[stage]) != layout.ipus[stage]:
                    return False
    return True


def _find_best_pipeline(
    step: StepMemory, layout: Layout, places: Sequence[int], num_ipus: int, last: Tuple[int, ...]
) -> Optional[Dict[str, Any]]:
    """Choose where stages begin: by moving one at a time from an even cut, as long as the fullest IPU holds less."""
    if len(places) < num_ipus - 1:
        return None

    def make(chosen: Tuple[int, ...]) -> Dict[str, Any]:
        # a pipeline always recomputes and accumulates
        begins, ipus = (0, *chosen, *last), (*range(num_ipus), *(0 for _ in last))
        return {"begins": begins, "ipus": ipus, "recomputes": True, "accumulates": True}

    chosen = tuple(places[len(places) * number // num_ipus] for number in range(1, num_ipus))
    chosen = chosen if len(set(chosen)) == len(chosen) else tuple(places[: num_ipus - 1])
    least = _measure_fullest(step, replace(layout, **make(chosen)))
    for _round, number in itertools.product(range(3), range(num_ipus - 1)):
        low = chosen[number - 1] if number else 0
        high = chosen[number + 1] if number < num_ipus - 2 else len(step.operations)
        for place in (place for place in places if low < place < high):
            trial = (*chosen[:number], place, *chosen[number + 1 :])
            size = _measure_fullest(step, replace(layout, **make(trial)))
            if size < least:
                least, chosen = size, trial
    return make(chosen)
