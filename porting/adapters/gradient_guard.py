"""A guard of traces: refuses what changes gradients on the host and is lost on a device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Collection, Iterator

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from porting.diagnostics import CaptureError, caller_place
from porting.structure import flatten_tensors

__all__ = ["guard_gradients"]


@contextmanager
def guard_gradients(allowed: Collection[str], *, trains: bool) -> Iterator[None]:
    """Refuse custom autograd functions (C005), hooks and autograd (C007) on a device's tensors while the context lasts.

    A device differentiates the operators that it has traced by rules of its own. It calls no Python on the way, and
    says nothing of it. Custom functions are let pass where `allowed` has their slug, and both they and hooks where
    nothing `trains`, or gradients are off. Backends that compute the `backward` of a custom function themselves decide
    about their tensors themselves.
    """
    # a device trains what it traces even under the caller's `no_grad`
    was_on = torch.is_grad_enabled()
    with _Calls(trains, was_on):
        if not trains or "custom-autograd-function" in allowed:
            yield
            return
        with _refuse_custom_functions(was_on):
            yield


class _Calls(TorchFunctionMode):
    """Sees the calls of autograd and the hooks of tensors."""

    def __init__(self, trains: bool, was_on: bool) -> None:
        super().__init__()
        self._was_on = was_on
        self._refused = _AUTOGRAD | _HOOKS if trains else _AUTOGRAD

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse autograd on the device's tensors and pass everything else on."""
        kwargs = kwargs or {}
        if func in self._refused and _list_device_tensors(args, kwargs):
            if func not in _HOOKS or not _is_switched_off(self._was_on):
                raise _make_autograd_error(func)
        return func(*args, **kwargs)


_AUTOGRAD = frozenset([torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward])
# torch 2.0 has the first of them only
_HOOKS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("register_hook", "register_post_accumulate_grad_hook")
    if hasattr(torch.Tensor, name)
)


def _is_switched_off(was_on: bool) -> bool:
    return was_on and not torch.is_grad_enabled()


def _list_device_tensors(args: Any, kwargs: Any) -> Any:
    return [tensor for tensor in flatten_tensors((args, kwargs)) if tensor.device.type == "ipu"]


def _make_autograd_error(func: Any) -> CaptureError:
    name = getattr(func, "__qualname__", str(func)).replace("_TensorBase.", "Tensor.").replace("TensorBase.", "Tensor.")
    return CaptureError.of(
        "C007",
        message=f"`{name}` is called inside `forward`",
        place=caller_place(),
        label="the device differentiates the final loss itself, once, after `forward`",
        help="compute in `forward` what it does to the gradient: `x * scale + (x - x * scale).detach()` scales it",
    )


@contextmanager
def _refuse_custom_functions(was_on: bool) -> Iterator[None]:
    """Let `torch.autograd.Function.apply` refuse tensors of the device; for all others it works as before."""
    kind: Any = torch.autograd.Function
    original = kind.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # a device that traces does not tell whether a gradient flows through an intermediate tensor
        floats = [tensor for tensor in _list_device_tensors(args, kwargs) if tensor.is_floating_point()]
        is_lost = bool(floats) and not any(getattr(tensor, "keeps_backward", False) for tensor in floats)
        if is_lost and cls is not CheckpointFunction and not _is_switched_off(was_on):
            raise _make_custom_function_error(cls)
        return original.__get__(None, cls)(*args, **kwargs)

    kind.apply = classmethod(apply)
    try:
        yield
    finally:
        kind.apply = original


def _make_custom_function_error(cls: Any) -> CaptureError:
    return CaptureError.of(
        "C005",
        message=f"`{cls.__name__}` is a custom autograd function, whose `backward` would be lost",
        place=caller_place(),
        label="the device differentiates what its `forward` does",
        help=(
            "write it with differentiable operators: `x + (rounded - x).detach()` has the value of `rounded` and the "
            "gradient of `x`",
            "if its `backward` is just the derivative: `PortOptions(allow=['custom-autograd-function'])`",
        ),
    )
