"""This module chooses what a step keeps for its backward pass, which computes all else a second time.

Plans and ports use it for `PortOptions(recompute="sqrt")`, for a budget as "200 MB", and on the ladder. What may be
kept are outputs of modules that are called once.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from ..diagnostics import OptionError
from ..options import PortOptions, read_recomputation
from .memory_model import Layout, balance_bytes, measure_waiting
from .step_memory import StepMemory

__all__ = [
    "choose_kept",
    "drop_policy",
    "iter_kept",
    "measure_most_waiting",
    "resolve_recompute",
    "sketch_recompute",
    "spell_budget",
]

_MOST_BOUNDARIES = 48
_MOST_TRIALS = 64


def drop_policy(options: PortOptions) -> PortOptions:
    """Return options without a policy of recomputation: what a plan has to say cannot be asked of a port before."""
    return options.replace(recompute=()) if isinstance(options.recompute, str) else options


def sketch_recompute(step: StepMemory, options: PortOptions, layout: Layout) -> Layout:
    """Return the layout that stages are cut by: with little kept where options say "sqrt" or a budget."""
    if not isinstance(options.recompute, str):
        return layout
    return resolve_recompute(step, options.replace(recompute="sqrt"), layout)[1]


def resolve_recompute(step: StepMemory, options: PortOptions, layout: Layout) -> Tuple[PortOptions, Layout]:
    """Return options that name what is kept, where they say "sqrt" or a budget, and the layout with it."""
    if not isinstance(options.recompute, str):
        return options, layout
    names = choose_kept(step, layout, options.recompute) if step.mode == "training" else ()
    recomputes = bool(names) or (len(layout.begins) > 1 and step.mode == "training")
    layout = replace(layout, marks=step.ends_of(names), recomputes=recomputes)
    return options.replace(recompute=names), layout


def choose_kept(step: StepMemory, layout: Layout, wanted: str) -> Tuple[str, ...]:
    """Return the modules whose outputs are kept, by a policy: "sqrt", or a budget as "200 MB"; none if all fits in it.

    "sqrt" cuts the step into even stretches, as many as leave the least: about the root of the number of modules, if
    they are alike (Chen et al., 2016). A budget, of what is kept and computed again on each IPU, is filled with those
    outputs that save most operations. Raises OptionError P002 for a budget that is less than that of "sqrt".
    """
    budget = read_recomputation(wanted)
    plain = replace(layout, marks=(), recomputes=len(layout.begins) > 1)
    if budget is not None and measure_most_waiting(step, plain) <= budget:
        return ()
    names = min(
        iter_kept(step), key=lambda names: measure_most_waiting(step, _keep_outputs(step, layout, names)), default=[]
    )
    if budget is None:
        return tuple(names)
    least = measure_most_waiting(step, _keep_outputs(step, layout, names))
    if least > budget:
        raise OptionError.at_caller(
            "P002",
            message=f"`recompute` is {wanted!r}, and what waits for the backward pass takes {_write_mega(least)}",
            notes="that is with as little kept as can be",
            help=f'use `recompute="{_write_mega(least)}"` or more, "sqrt", or a smaller micro-batch',
        )
    return tuple(
        _grow_kept(step, names, lambda more: measure_most_waiting(step, _keep_outputs(step, layout, more)) <= budget)
    )


def _grow_kept(step: StepMemory, names: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> List[str]:
    """Keep more outputs besides `names` while it fits: first those that save most operations for each byte."""
    kept = list(names)
    places = {name: position for position, name in _collect_outputs(step).items()}
    saved = {name: step.operations[at].flops / max(1, step.operations[at].result_bytes) for name, at in places.items()}
    worth = sorted((name for name in saved if saved[name] and name not in kept), key=lambda name: -saved[name])
    for name in worth[:_MOST_TRIALS]:
        more = sorted((*kept, name), key=lambda name: step.ends_of([name]))
        if fits(more):
            kept = more
    return kept


def spell_budget(waiting_bytes: int, spare_bytes: int) -> str:
    """Write what waits now, and what is to spare besides, as a budget of whole megabytes."""
    megabytes = (waiting_bytes + max(0, spare_bytes) / balance_bytes(1.0)) / 1e6
    return f"{math.floor(megabytes) if megabytes - waiting_bytes / 1e6 > 1 else math.ceil(megabytes)} MB"


def iter_kept(step: StepMemory) -> Iterator[List[str]]:
    """List ways to keep little: modules at one depth, blocks of one class, and even stretches of outputs."""
    yield from _iter_chains(step)
    yield from _iter_alike(step)
    yield from _iter_even(step)


def _write_mega(num_bytes: int) -> str:
    """Write bytes as megabytes, rounded up, so that it is enough as a budget."""
    return f"{math.ceil(num_bytes / 10_000) / 100:g} MB"


def _keep_outputs(step: StepMemory, layout: Layout, names: Sequence[str]) -> Layout:
    return replace(layout, marks=step.ends_of(names), recomputes=True)


def measure_most_waiting(step: StepMemory, layout: Layout) -> int:
    """Return the bytes that are kept and computed again on the IPU where they are the most."""
    kept, again = [0] * layout.num_ipus, [0] * layout.num_ipus
    for number, (ipu, first, end) in enumerate(layout.iter_stages(len(step.operations))):
        waits, repeated = measure_waiting(step, layout, number, first, end)
        kept[ipu], again[ipu] = kept[ipu] + waits, max(again[ipu], repeated)
    return max(map(sum, zip(kept, again)))


# -- modules whose outputs may be kept ---------------------------------------------------------------------------------


def _collect_outputs(step: StepMemory) -> Dict[int, str]:
    """Return the modules that are called once by the operators that make their outputs: of several the outermost."""
    found: Dict[int, str] = {}
    once = frozenset(name for name in step.calls if "#" not in name)
    for position, operation in enumerate(step.operations[:-1]):
        names = sorted(once.intersection(operation.ends), key=lambda name: name.count("."))
        if names:
            found[position] = names[0]
    return found


def _iter_chains(step: StepMemory) -> Iterator[List[str]]:
    """List those of the modules that are called that are at one depth of the model, for each depth."""
    called = list(step.called)
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


def _iter_even(step: StepMemory) -> Iterator[List[str]]:
    """List outputs that cut what is kept into 2, 3, ... even stretches, each the smallest output near its place."""
    outputs = _collect_outputs(step)
    changes = [0] * (len(step.operations) + 1)
    for value in step.values:
        if value.kept_at:
            changes[min(value.kept_at)] += value.num_bytes
    sums = list(itertools.accumulate(changes))
    for count in range(2, min(len(outputs), _MOST_BOUNDARIES) + 2):
        width = sums[-1] / count
        names: List[str] = []
        for number in range(1, count):
            near = [at for at in outputs if abs(sums[at] - number * width) <= width / 4]
            near = near or sorted(outputs, key=lambda at: abs(sums[at] - number * width))[:1]
            names.append(outputs[min(near, key=lambda at: (step.operations[at].result_bytes, at))])
        yield list(dict.fromkeys(names))
