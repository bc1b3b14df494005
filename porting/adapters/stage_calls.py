"""Find where stages begin: a stage names a module, of which each call begins it, or one of its calls ("block#2").

Ports mark their blocks by it, and plans number the operators of stages.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any, Callable, Container, Dict, Iterable, Iterator, Optional, Tuple

from torch import nn

__all__ = ["collect_modules", "follow_stages", "number_stages", "split_call"]

_CALL = re.compile(r"(.+)#([1-9][0-9]*)")


def collect_modules(model: nn.Module) -> Dict[str, nn.Module]:
    """Return the modules inside `model` by all of their names: one that is shared has several."""
    return {name: module for name, module in model.named_modules(remove_duplicate=False) if name}


def split_call(stage: str, known: Container[str]) -> Tuple[str, int]:
    """Return the module of `known` that a stage names and the number of its call, counted from 1, or 0 for every call.

    >>> split_call("block#2", ["block"]), split_call("block", ["block"])
    (('block', 2), ('block', 0))
    """
    found = _CALL.fullmatch(stage)
    # a module may have such a name itself
    if found is None or stage in known:
        return stage, 0
    return found.group(1), int(found.group(2))


def number_stages(ipus: Iterable[Optional[int]]) -> Iterator[int]:
    """Number stages as `PortOptions.stage_ipus` does, another one where the IPU changes; None is that of before.

    >>> list(number_stages([0, None, 1, 0]))
    [0, 0, 1, 2]
    """
    number, before = 0, 0
    for ipu in ipus:
        if ipu is not None:
            number += ipu != before
            before = ipu
        yield number


def follow_stages(model: nn.Module, stages: Iterable[str], begin: Callable[[str, nn.Module, Any], None]) -> ExitStack:
    """Call `begin(stage, module, args)` where `forward` of `model` begins each of `stages`, until closed.

    Calls are counted from the beginning of `model`. A stage that names no call begins with each call of its module but
    those that other stages name.
    """
    modules = collect_modules(model)
    numbered: Dict[nn.Module, Dict[int, str]] = {}
    for stage in stages:
        name, number = split_call(stage, modules)
        numbered.setdefault(modules[name], {})[number] = stage
    counts: Dict[nn.Module, int] = {}

    def count(module: nn.Module, args: Any) -> None:
        counts[module] = counts.get(module, 0) + 1
        own = numbered[module]
        stage = own.get(counts[module], own.get(0))
        if stage is not None:
            begin(stage, module, args)

    undone = ExitStack()
    undone.callback(model.register_forward_pre_hook(lambda _module, _args: counts.clear()).remove)
    for module in numbered:
        undone.callback(module.register_forward_pre_hook(count).remove)
    return undone
