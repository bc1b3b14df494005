"""Place blocks and checkpoints by the names of modules, as hooks that exist only while a step is traced.

Ports use it for `stages`, `recompute` and `serialize` of their options.
"""

from __future__ import annotations

import difflib
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate, groupby
from types import ModuleType
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
from torch import nn

from porting.diagnostics import OptionError, join_names, take_first_line
from porting.options import PortOptions
from porting.structure import Structure, map_tensors
from porting.torch_insides.modules import read_forward_pre_hooks

__all__ = ["balanced_stages", "check_order", "mark_stages", "require_filled_pipeline", "require_modules"]


def require_modules(model: nn.Module, options: PortOptions) -> None:
    """Raise OptionError P007 if `options` name a module that `model` does not have."""
    known = list(_collect_modules(model))
    asked = {"stages": options.stages or (), "recompute": options.recompute, "serialize": options.serialize or ()}
    named = [(option, name) for option, names in asked.items() for name in names]
    for option, name in named:
        if name not in known:
            inner = [other for other in known if other.endswith(f".{name}")]
            near = join_names(difflib.get_close_matches(name, known, n=3) or inner[:3])
            outermost = join_names([other for other in known if "." not in other][:8])
            raise OptionError.at_caller(
                "P007",
                message=f"`{option}` names `{name}`, but the model has no such module",
                notes=() if near else f"its outermost modules are {outermost or 'none: it is a single module'}",
                help=f"did you mean {near}?" if near else "use names as `model.named_modules()` gives them",
            )
    _require_linear(_collect_modules(model), options)


def require_filled_pipeline(options: PortOptions) -> None:
    """Raise OptionError P008 if a training step of `options` has fewer micro-batches than its pipeline needs.

    Forward and backward pass of N stages are 2 N - 1 steps of a pipeline, since the last stage goes from one to the
    other at once. Each holds a micro-batch of the same optimizer step.
    """
    num_stages, needed = len(options.stage_ipus), options.least_accumulation
    if options.accumulation < needed:
        raise OptionError.at_caller(
            "P008",
            message=f"an accumulation of {options.accumulation} does not fill a pipeline of {num_stages} stages",
            notes=f"{num_stages} stages forward and {num_stages - 1} more backward work on a micro-batch each",
            help=f"use `accumulation={needed}` or more, and a smaller micro-batch for the same step; or fewer stages",
        )


def _require_linear(modules: Mapping[str, nn.Module], options: PortOptions) -> None:
    """Raise OptionError P007 for a product that is to be computed in parts and cannot."""
    for name, parts in (options.serialize or {}).items():
        module = modules[name]
        if not isinstance(module, nn.Linear):
            fault = f"`{name}`, which is a {type(module).__name__}"
        elif module.out_features % parts:
            fault = f"`{name}`, whose {module.out_features} outputs are not {parts} equal parts"
        else:
            continue
        raise OptionError.at_caller(
            "P007",
            message=f"`serialize` names {fault}",
            help="name Linear modules, and a number of parts that divides their `out_features`",
        )


@contextmanager
def mark_stages(model: nn.Module, options: PortOptions, *, backend: ModuleType) -> Iterator[List[str]]:
    """Mark blocks and checkpoints of `options` in `model` while the context lasts.

    Each module that `options.stages` name begins a block of `backend` on its IPU (`BeginBlock`), and the output of each
    that `options.recompute` name passes `recomputationCheckpoint`. Both are hooks, which are taken away at the end: the
    model's classes, its own hooks and its use without a device stay as they are. The list that the context gives
    holds the names of the stages in the order in which the last run of `forward` began them.

    Raises OptionError: P007 for a name that `model` does not have, P002 for a module that begins a block by itself.
    """
    require_modules(model, options)
    modules = _collect_modules(model)
    begun: List[str] = []

    def keep(_module: nn.Module, _args: object, output: Structure) -> Any:
        return map_tensors(backend.recomputationCheckpoint, output) if backend.isRunningOnIpu() else output

    with ExitStack() as undone:
        if options.stages:
            undone.callback(model.register_forward_pre_hook(lambda _module, _args: begun.clear()).remove)
        for name, ipu in (options.stages or {}).items():
            note = partial(lambda name, _module, _args: begun.append(name), name)
            undone.callback(modules[name].register_forward_pre_hook(note).remove)
            _begin_block(modules[name], name, ipu, backend, undone)
        for name, parts in (options.serialize or {}).items():
            undone.enter_context(_compute_in_parts(modules[name], parts, backend))
        for name in options.recompute:
            undone.callback(modules[name].register_forward_hook(keep).remove)
        yield begun


def check_order(options: PortOptions, begun: Sequence[str]) -> None:
    """Raise OptionError P009 unless the stages that began, in their order, are those of `options`.

    A module that is called again within its own stage changes nothing.
    """
    stages = options.stages or {}
    missing = [name for name in stages if name not in begun]
    if missing:
        raise OptionError.at_caller(
            "P009",
            message=f"`forward` does not call `{missing[0]}`, so that no stage begins there",
            notes=f"it began: {join_names(begun) or 'none'}",
            help="name a module that is called itself: containers such as ModuleList are not, their items are",
        )
    called = list(dict.fromkeys(begun))
    visited = tuple(ipu for ipu, _names in groupby([0, *(stages[name] for name in begun)]))
    if called != list(stages) or visited != options.stage_ipus:
        raise OptionError.at_caller(
            "P009",
            message="the model runs its stages in another order than `stages` lists them",
            notes=(f"listed: {join_names(stages)}", f"begun: {join_names(begun)}"),
            help="list them as they run; a module that is called from two stages needs a stage of its own each time",
        )


def balanced_stages(model: nn.Module, num_ipus: int, *, within: str = "") -> Dict[str, int]:
    """Cut a sequence of modules into `num_ipus` stages whose largest number of parameter bytes is the least possible.

    `within` is the name of the sequence, an `nn.Sequential` or `nn.ModuleList` whose items run one after another; by
    default it is `model` itself. Only what lies inside counts: give modules around it, such as a head, stages of their
    own. Raises ValueError for fewer items than IPUs.

    >>> layers = [nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 100)]
    >>> balanced_stages(nn.Sequential(*layers), 2)
    {'0': 0, '3': 1}
    """
    items = list(model.get_submodule(within).named_children())
    if not 1 <= num_ipus <= len(items):
        raise ValueError(f"{len(items)} modules in sequence cannot be {num_ipus} stages")
    sizes = [sum(p.numel() * p.element_size() for p in item.parameters()) for _name, item in items]
    prefix = f"{within}." if within else ""
    return {f"{prefix}{items[first][0]}": ipu for ipu, first in enumerate(_list_even_cuts(sizes, num_ipus))}


def _collect_modules(model: nn.Module) -> Dict[str, nn.Module]:
    """Return the modules inside `model` by all of their names: one that is shared has several."""
    return {name: module for name, module in model.named_modules(remove_duplicate=False) if name}


def _begin_block(module: nn.Module, name: str, ipu: int, backend: ModuleType, undone: ExitStack) -> None:
    """Let the backend mark `module`, and its mark alone be taken away: `removeBlocks` would take the user's, too."""
    before = set(read_forward_pre_hooks(module))
    try:
        backend.BeginBlock(module, user_id=name, ipu_id=ipu)
    except backend.Error as error:
        raise OptionError.at_caller(
            "P002",
            message=f"`stages` names `{name}`, which begins a block already",
            notes=take_first_line(error),
            help="place the model by `stages` alone: `poptorch.removeBlocks(model)` takes its own blocks away",
        ) from error
    for number in set(read_forward_pre_hooks(module)) - before:
        undone.callback(read_forward_pre_hooks(module).pop, number, None)


@contextmanager
def _compute_in_parts(module: nn.Module, parts: int, backend: ModuleType) -> Iterator[None]:
    """Let a Linear module compute its product in so many parts of its outputs while the context lasts."""

    def forward(input: torch.Tensor) -> torch.Tensor:
        weight: torch.Tensor = module.weight  # type: ignore[assignment]
        mode = backend.MatMulSerializationMode.OutputChannels
        product: torch.Tensor = backend.serializedMatMul(input, weight.t(), mode, parts)
        return product if module.bias is None else product + module.bias  # type: ignore[operator]

    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _list_even_cuts(sizes: Sequence[int], num_parts: int) -> List[int]:
    """Return where each of `num_parts` runs of `sizes` begins so that the largest sum is the least possible."""
    # dynamic programming over (parts, items): the best of the first k items in p parts is the least, over the beginning
    # of the last part, of the larger of the best before it and its own sum
    count, sums = len(sizes), [0, *accumulate(sizes)]
    best: List[Tuple[int, List[int]]] = [(sums[end], [0]) for end in range(count + 1)]
    for part in range(2, num_parts + 1):
        best = [
            min(
                ((max(best[cut][0], sums[end] - sums[cut]), [*best[cut][1], cut]) for cut in range(part - 1, end)),
                key=lambda found: found[0],
                default=(sums[-1] + 1, []),
            )
            for end in range(count + 1)
        ]
    return best[count][1]
