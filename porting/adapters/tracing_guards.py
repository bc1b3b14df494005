"""Guard a `forward` that a device traces: refuse what would be lost, and answer what libraries ask torch.

`LossInForward` traces under these guards. Libraries ask torch whether a graph is made before they look at values, and
torch before 2.5 or so refuses `torch.autocast` for a device that it does not know. A device differentiates the
operators that it has traced by rules of its own: it calls no Python on the way, and reports nothing.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Collection, Iterator, List, Optional, Sequence, Type

import torch
from torch.utils.checkpoint import CheckpointFunction

from porting.diagnostics import CaptureError, advise_on_autograd, refuse
from porting.structure import flatten_tensors
from porting.support.function_modes import Args, Kwargs, SelectiveMode
from porting.torch_insides.autograd import intercept_custom_functions
from porting.torch_insides.exchanged import exchanged

__all__ = ["PrintGuard", "announce_tracing", "answer_autocast", "guard_gradients"]

# `str` and f-strings come here through `__repr__` and `__format__`.
_PRINTING = frozenset([torch.Tensor.__repr__, torch.Tensor.__format__])

# Modules that get torch's own answer: torch records no TorchScript, and models of transformers that hear of tracing
# take sizes for tensors.
_UNTOLD = ("torch.", "transformers.models.")


class PrintGuard(SelectiveMode):
    """A context in which turning a device tensor into text raises CaptureError C010 with the user's line.

    PopTorch shows `<unavailable>` instead, once, at compile time, and the programmer looks for the fault elsewhere.
    """

    def concerns(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> bool:
        """Tell whether it makes text."""
        return func in _PRINTING

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        if func in _PRINTING and args[0].device.type == "ipu":
            error = CaptureError.at_caller(
                "C010",
                label="`forward` runs once, before there are values",
                notes=f"the tensor has shape {tuple(args[0].shape)} and type {args[0].dtype}",
                help="return the tensor as an output of the model, or use `poptorch.ipu_print_tensor(tensor)`",
            )
            refuse(error)
        return func(*args, **(kwargs or {}))


@contextmanager
def announce_tracing() -> Iterator[None]:
    """Let `torch.jit.is_tracing()` be True for all callers but torch while the context lasts.

    Libraries take a shortcut where the values of a tensor allow it: transformers leaves out an attention mask without
    padding. While a graph is made there are no values, so they must take the general path. Torch's own code gets the
    usual answer, because no TorchScript is recorded. So do the models of transformers, which would otherwise take
    sizes for tensors.

    >>> with announce_tracing():
    ...     torch.jit.is_tracing()
    True
    >>> torch.jit.is_tracing()
    False
    """

    def make(original: Callable[[], bool]) -> Callable[[], bool]:
        def is_tracing() -> bool:
            asking = sys._getframe(1)
            # this function itself asks where one trace lies in another, or beside it
            is_untold = asking.f_code is sys._getframe(0).f_code
            is_untold = is_untold or f"{asking.f_globals.get('__name__', '')}.".startswith(_UNTOLD)
            return bool(original()) if is_untold else True

        return is_tracing

    with exchanged(torch.jit, "is_tracing", make):
        yield


@contextmanager
def answer_autocast() -> Iterator[None]:
    """Accept `torch.autocast("ipu", enabled=False)`, which switches off what is off anyway, while the context lasts.

    Models keep parts of themselves out of autocast by the device of their input: `autocast(x.device.type,
    enabled=False)`. Enabling autocast would have no effect on the device: CaptureError P001.

    >>> with answer_autocast(), torch.autocast("ipu", enabled=False):
    ...     torch.is_autocast_enabled()
    False
    """

    def make(original: Callable[..., None]) -> Callable[..., None]:
        def begin(
            context: object, device_type: object, dtype: object = None, enabled: bool = True, *args: Any, **kwargs: Any
        ) -> None:
            if device_type != "ipu":
                original(context, device_type, dtype, enabled, *args, **kwargs)
                return
            if enabled:
                error = CaptureError.at_caller(
                    "P001",
                    message="`forward` enables `torch.autocast` for the device, which has none",
                    help="leave it out, and choose a precision: `PortOptions(precision='mixed')`",
                )
                refuse(error)
            original(context, "cpu", enabled=False)

        return begin

    with exchanged(torch.autocast, "__init__", make):
        yield


@contextmanager
def guard_gradients(allowed: Collection[str], *, trains: bool) -> Iterator[None]:
    """Refuse custom autograd functions (C005), hooks and autograd (C007) on a device's tensors while the context lasts.

    Custom functions are let pass where `allowed` has their slug, and both they and hooks where nothing `trains`, or
    gradients are off. Backends that compute the `backward` of a custom function themselves decide about their tensors
    themselves.
    """
    # a device trains what it traces even under the caller's `no_grad`; only what `forward` itself switches off is off
    was_on = torch.is_grad_enabled()

    def refuse_lost(
        apply: Callable[..., Any], function: Type[torch.autograd.Function], args: Args, kwargs: Kwargs
    ) -> Any:
        # a device that traces does not tell whether a gradient flows through an intermediate tensor
        floats = [tensor for tensor in _list_device_tensors(args, kwargs) if tensor.is_floating_point()]
        is_lost = bool(floats) and not any(getattr(tensor, "keeps_backward", False) for tensor in floats)
        if is_lost and function is not CheckpointFunction and (torch.is_grad_enabled() or not was_on):
            raise CaptureError.at_caller(
                "C005",
                message=f"`{function.__name__}` is a custom autograd function, whose `backward` would be lost",
                label="the device differentiates what its `forward` does",
                help=(
                    "write it with differentiable operators: `x + (rounded - x).detach()` has the value of `rounded` "
                    "and the gradient of `x`",
                    "if its `backward` is just the derivative: `PortOptions(allow=['custom-autograd-function'])`",
                ),
            )
        return apply(*args, **kwargs)

    is_guarded = trains and "custom-autograd-function" not in allowed
    with _AutogradGuard(trains, was_on), intercept_custom_functions(refuse_lost) if is_guarded else nullcontext():
        yield


class _AutogradGuard(SelectiveMode):
    """A context in which autograd and, where something trains, hooks are refused on a device's tensors."""

    def __init__(self, trains: bool, was_on: bool) -> None:
        super().__init__()
        self._was_on = was_on
        self._refused = _AUTOGRAD | _HOOKS if trains else _AUTOGRAD

    def concerns(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> bool:
        """Tell whether it is refused for tensors of a device."""
        return func in self._refused

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        kwargs = kwargs or {}
        is_lost = func not in _HOOKS or torch.is_grad_enabled() or not self._was_on
        if is_lost and func in self._refused and _list_device_tensors(args, kwargs):
            name = getattr(func, "__qualname__", str(func)).replace("_TensorBase", "TensorBase")
            name = name.replace("TensorBase.", "Tensor.")
            error = CaptureError.at_caller(
                "C007",
                message=f"`{name}` is called inside `forward`",
                label="the device differentiates the final loss itself, once, after `forward`",
                help=advise_on_autograd(name),
            )
            refuse(error)
        return func(*args, **kwargs)


_AUTOGRAD = frozenset([torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward])
# torch 2.0 has the first of them only
_HOOKS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("register_hook", "register_post_accumulate_grad_hook")
    if hasattr(torch.Tensor, name)
)


def _list_device_tensors(args: Args, kwargs: Kwargs) -> List[torch.Tensor]:
    return [tensor for tensor in flatten_tensors((args, kwargs)) if tensor.device.type == "ipu"]
