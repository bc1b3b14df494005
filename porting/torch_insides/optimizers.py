"""Name the private parts of torch's optimizers: functions of many tensors, hooks, and how schedulers see a step."""

from __future__ import annotations

from contextlib import contextmanager
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

import torch

from .parts import Parts

__all__ = ["FUSED", "PARTS", "foreach", "list_step_hooks", "mark_stepped", "probe", "show_step"]

PARTS = Parts("tensors are updated one by one")
probe = PARTS.probe


def call_each(name: str) -> Callable[..., Any]:
    """Return a function that does for many tensors, one by one, what a method does for one."""

    def call(tensors: Sequence[torch.Tensor], *others: Any, **settings: Any) -> Any:
        found = []
        for position, tensor in enumerate(tensors):
            given = [other[position] if isinstance(other, (list, tuple)) else other for other in others]
            # the factor of the other two, which the method takes by its name alone
            factor = {"value": given.pop()} if name.startswith("addc") and len(given) > 2 else {}
            found.append(getattr(tensor, name)(*given, **factor, **settings))
        return None if name.endswith("_") else found

    return call


_IN_PLACE = ("add_", "addcdiv_", "addcmul_", "copy_", "div_", "lerp_", "mul_", "sqrt_")
_NEW = ("add", "addcmul", "div", "norm", "sqrt")

foreach: Any = SimpleNamespace(
    **{name: PARTS.find(f"torch:_foreach_{name}", instead=call_each(name)) for name in (*_IN_PLACE, *_NEW)}
)
"""Functions of lists of tensors, named as the method of one tensor: `foreach.add_(tensors, others)`."""

FUSED: Dict[str, Any] = {
    family: PARTS.find(f"torch:_fused_{name}_", instead=None, loses=f"no kernel updates by {family} in one pass")
    for family, name in (("SGD", "sgd"), ("ADAM", "adam"), ("ADAMW", "adamw"))
}
"""Kernels that do a whole update in one pass over memory, by the family of the optimizer; None where torch has none."""


_EVERY_STEP_HOOK = [
    PARTS.find(
        f"torch.optim.optimizer:_global_optimizer_{when}_hooks", instead={}, loses="no hook of all optimizers is seen"
    )
    for when in ("pre", "post")
]


def list_step_hooks(optimizer: torch.optim.Optimizer) -> List[Mapping[Any, Any]]:
    """List the tables of hooks that a step of `optimizer` on the host runs: its own two, then two of all optimizers."""
    own = [getattr(optimizer, f"_optimizer_step_{when}_hooks", {}) for when in ("pre", "post")]
    return [*own, *_EVERY_STEP_HOOK]


# a function that is no frame of Python's, as it is called in each call of a port
mark_stepped: Callable[[Any], None] = methodcaller("__setattr__", "_opt_called", True)
"""Let torch's schedulers, which look for a call of `step` on the host, see that an optimizer has stepped."""


@contextmanager
def show_step(optimizer: Any) -> Iterator[None]:
    """Let torch's schedulers see that the optimizer has stepped, while the context lasts."""
    # torch 2.4 and later reads a flag, earlier versions a counter; both belong to the wrapper that a scheduler puts
    # around `step`
    counter, flag = getattr(optimizer, "_step_count", None), getattr(optimizer, "_opt_called", None)
    if counter is not None:
        optimizer._step_count = counter + 1
    mark_stepped(optimizer)
    try:
        yield
    finally:
        # PopTorch complains of attributes that an optimizer did not have at first
        if flag is None:
            del optimizer._opt_called
        else:
            optimizer._opt_called = flag
