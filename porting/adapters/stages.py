"""Place blocks and checkpoints by the names of modules, as hooks that exist only while a step is traced.

Ports use it for `stages`, `recompute` and `serialize` of their options.
"""

from __future__ import annotations

import difflib
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate, groupby
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
from torch import nn

from porting.adapters.stage_calls import collect_modules, follow_stages, number_stages, split_call
from porting.diagnostics import OptionError, join_names, say_kind, take_first_line
from porting.options import PortOptions
from porting.structure import Structure, map_tensors
from porting.torch_insides.modules import read_forward_pre_hooks

__all__ = ["balanced_stages", "check_order", "mark_stages", "require_filled_pipeline", "require_modules"]


def require_modules(model: nn.Module, options: PortOptions) -> None:
    """Raise OptionError P007 if `options` name a module that `model` does not have."""
    modules = collect_modules(model)
    known = list(modules)
    stages = [split_call(stage, modules)[0] for stage in options.stages or ()]
    # "sqrt" and budgets are no names: a plan makes names of them
    recompute = () if isinstance(options.recompute, str) else options.recompute
    asked = {"stages": stages, "recompute": recompute, "serialize": options.serialize or ()}
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
    _require_different(modules, options)
    _require_serializable(modules, options)


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


def _require_different(modules: Mapping[str, nn.Module], options: PortOptions) -> None:
    """Raise OptionError P007 for two stages that begin with the same call of a module, which has two names."""
    begun: Dict[Any, str] = {}
    for stage in options.stages or ():
        name, number = split_call(stage, modules)
        other = begun.setdefault((modules[name], number), stage)
        if other != stage:
            raise OptionError.at_caller(
                "P007",
                message=f"`stages` names `{other}` and `{stage}`, which are one module",
                help=f"name its calls in their order: `{name}#1`, `{name}#2`",
            )


def _require_serializable(modules: Mapping[str, nn.Module], options: PortOptions) -> None:
    """Raise OptionError P007 for a module that is to be computed in parts and cannot."""
    for name, parts in (options.serialize or {}).items():
        module = modules[name]
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            fault = f"`{name}`, which is {say_kind(module)}"
        elif isinstance(module, nn.Embedding) and (module.max_norm is not None or module.scale_grad_by_freq):
            fault = f"`{name}`, an Embedding with max_norm or scale_grad_by_freq, which needs all rows at once"
        elif module.weight.shape[0] % parts:
            what = "outputs" if isinstance(module, nn.Linear) else "rows"
            fault = f"`{name}`, whose {module.weight.shape[0]} {what} are not {parts} equal parts"
        else:
            continue
        raise OptionError.at_caller(
            "P007",
            message=f"`serialize` names {fault}",
            help=(
                "name Linear modules, and a number of parts that divides their `out_features`",
                "or Embedding modules, and a number that divides their `num_embeddings`",
            ),
        )


@contextmanager
def mark_stages(model: nn.Module, options: PortOptions, *, backend: ModuleType) -> Iterator[List[str]]:
    """Mark blocks and checkpoints of `options` in `model` while the context lasts.

    Where a stage of `options.stages` begins, so does a block of `backend` on its IPU (`BeginBlock`), and the output of
    each module that `options.recompute` name passes `recomputationCheckpoint`. Both are hooks, which are taken away at
    the end: the model's classes, its own hooks and its use without a device stay as they are. The list that the context
    gives holds the names of the stages in the order in which the last run of `forward` began them.

    Raises OptionError: P007 for a name that `model` does not have, P002 for a module that begins a block by itself.
    """
    require_modules(model, options)
    modules = collect_modules(model)
    begun: List[str] = []
    stages = options.stages or {}
    numbers = dict(zip(stages, number_stages(stages.values())))
    # a block of another name is a stage of its own for the vendor's AutoIncrement, and so is what precedes all blocks
    ids = {number: stage for stage, number in reversed(list(numbers.items()))}
    blocks = {
        stage: _make_block(modules[split_call(stage, modules)[0]], stage, backend, user_id=ids[number], ipu_id=ipu)
        for (stage, number), ipu in zip(numbers.items(), stages.values())
    }

    def begin(stage: str, module: nn.Module, args: object) -> None:
        begun.append(stage)
        if numbers[stage]:
            blocks[stage](module, args)

    def keep(_module: nn.Module, _args: object, output: Structure) -> Any:
        return map_tensors(backend.recomputationCheckpoint, output) if backend.isRunningOnIpu() else output

    with ExitStack() as undone:
        if stages:
            undone.callback(model.register_forward_pre_hook(lambda _module, _args: begun.clear()).remove)
            undone.enter_context(follow_stages(model, stages, begin))
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
            help="name a module that is called itself, and no later call than there is: containers such as ModuleList "
            "are not called, their items are",
        )
    called = list(dict.fromkeys(begun))
    visited = tuple(ipu for ipu, _names in groupby([0, *(stages[name] for name in begun)]))
    if called != list(stages) or visited != options.stage_ipus:
        raise OptionError.at_caller(
            "P009",
            message="the model runs its stages in another order than `stages` lists them",
            notes=(f"listed: {join_names(stages)}", f"begun: {join_names(begun)}"),
            help="list them as they run; of a module that is called from two stages name the calls: "
            '`stages={"block#1": 0, "block#2": 1}`',
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


def _make_block(
    module: nn.Module, stage: str, backend: ModuleType, **block: Any
) -> Callable[[nn.Module, object], None]:
    """Return what begins a block of the backend: its mark of `module`, which is taken off and called by the port."""
    hooks = read_forward_pre_hooks(module)
    before = set(hooks)
    try:
        backend.BeginBlock(module, **block)
    except backend.Error as error:
        raise OptionError.at_caller(
            "P002",
            message=f"`stages` names `{stage}`, which begins a block already",
            notes=take_first_line(error),
            help="place the model by `stages` alone: `poptorch.removeBlocks(model)` takes its own blocks away",
        ) from error
    (number,) = set(hooks) - before
    begin: Callable[[nn.Module, object], None] = hooks.pop(number)
    return begin


@contextmanager
def _compute_in_parts(module: nn.Module, parts: int, backend: ModuleType) -> Iterator[None]:
    """Let a module compute in so many parts of its outputs or rows while the context lasts."""
    before = vars(module).get("forward")
    module.forward = (
        partial(_look_up_in_parts, module, parts)
        if isinstance(module, nn.Embedding)
        else partial(_multiply_in_parts, module, parts, backend)
    )
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _multiply_in_parts(module: nn.Module, parts: int, backend: ModuleType, input: torch.Tensor) -> torch.Tensor:
    weight: torch.Tensor = module.weight  # type: ignore[assignment]
    mode = backend.MatMulSerializationMode.OutputChannels
    product: torch.Tensor = backend.serializedMatMul(input, weight.t(), mode, parts)
    return product if module.bias is None else product + module.bias  # type: ignore[operator]


def _look_up_in_parts(module: nn.Embedding, parts: int, input: torch.Tensor) -> torch.Tensor:
    """Look rows up in parts of the weight, one after the other, as PopTorch has no serialized lookup of its own."""
    rows = module.num_embeddings // parts
    found = None
    for number in range(parts):
        places = input - number * rows
        is_here = (places >= 0) & (places < rows)
        part = module.weight[number * rows : (number + 1) * rows]
        padding = None if module.padding_idx is None else module.padding_idx - number * rows
        taken = nn.functional.embedding(
            torch.where(is_here, places, torch.zeros_like(places)),
            part,
            padding if padding is not None and 0 <= padding < rows else None,
        )
        # a choice, since a product with 0 would spread what is not finite
        taken = torch.where(is_here.unsqueeze(-1), taken, torch.zeros_like(taken))
        found = taken if found is None else found + taken
    assert found is not None
    return found


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
