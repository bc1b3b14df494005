"""Refuse to move, cast or wrap a ported model, except where that changes nothing."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
from torch import nn

from ..diagnostics import DeviceError, caller_place

__all__ = [
    "cannot_be_copied",
    "cannot_move",
    "check_cast",
    "check_move",
    "make_data_parallel_error",
    "refuse_wrapper_that_asks",
]

_DEVICES = ("cpu", "ipu")
_REPLICAS = (
    "spread a batch over devices by `PortOptions(replicas=N)`; several processes start with `poprun` or `torchrun`"
)
_ENGINE = "leave `torch.compile` out: the whole step is compiled already; `PortOptions(engine=...)` chooses how"

# wrappers that ask what they get for an attribute, before they do anything with it
_ASKED_BY = {
    "_ddp_params_and_buffers_to_ignore": ("DistributedDataParallel", _REPLICAS),
    "_torchdynamo_orig_callable": ("torch.compile", _ENGINE),
}


def check_move(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Accept the arguments of `.to(...)` that leave `model` as it is; DeviceError D003 for all others.

    Such are the host and the IPU, since the weights are on the host whenever they are looked at, and the type that the
    weights have.
    """
    keywords = {name: value for name, value in kwargs.items() if name not in ("non_blocking", "copy")}
    for value in (*args, *keywords.values()):
        if isinstance(value, torch.Tensor):
            _check_device(value.device, value)
            check_cast(model, value.dtype, "to(tensor)")
        elif isinstance(value, torch.dtype):
            check_cast(model, value, f"to({value})")
        elif isinstance(value, torch.memory_format):
            raise cannot_move(f"to(memory_format={value})")
        elif value is not None and not isinstance(value, bool):
            _check_device(value, value)


def _check_device(device: Any, value: Any) -> None:
    name = device if isinstance(device, str) else getattr(device, "type", "cuda")
    if str(name).split(":")[0] not in _DEVICES:
        raise cannot_move(f"to({value!r})" if not isinstance(value, torch.Tensor) else "to(tensor)")


def check_cast(model: nn.Module, dtype: Any, call: str) -> None:
    """Accept `dtype` if all floating-point weights of `model` have it already; DeviceError D003 otherwise."""
    floats = [tensor for tensor in model.parameters() if tensor.is_floating_point()]
    if any(dtype not in (tensor.dtype, tensor.type()) for tensor in floats):
        raise cannot_move(call)


def cannot_move(call: str) -> DeviceError:
    """Make the error for `call`, which would move or cast the model."""
    return DeviceError.of(
        "D003",
        message=f"`{call}` would take the model off its device or change its type",
        place=caller_place(),
        notes="on a plain executor this call returns the bare module, and training goes on on the host",
        help=(
            "choose the device with `to_ipu(..., device=...)` and the precision with `PortOptions(precision=...)`",
            "for a plain PyTorch model, `ported.destroy()` first and go on with your own module",
        ),
    )


def cannot_be_copied() -> DeviceError:
    """Make the error for copying and pickling a ported model."""
    return DeviceError.of(
        "D003",
        message="a ported model cannot be copied or pickled",
        place=caller_place(),
        notes="it holds an executable and a device",
        help=("save its weights: `torch.save(ported.state_dict(), path)`", "or copy the module: `ported.model`"),
    )


# -- wrappers for plain modules ----------------------------------------------------------------------------------------


def refuse_wrapper_that_asks(attribute: str) -> None:
    """Raise DeviceError D003 if `attribute` is one by which a wrapper is known."""
    if attribute in _ASKED_BY:
        raise _make_wrapper_error(*_ASKED_BY[attribute])


def make_data_parallel_error() -> DeviceError:
    """Return DeviceError D003 for a call by `nn.DataParallel`, which asks for nothing and runs what it was given."""
    return _make_wrapper_error("DataParallel", _REPLICAS)


def _make_wrapper_error(wrapper: str, remedy: str) -> DeviceError:
    return DeviceError.of(
        "D003",
        message=f"a ported model is wrapped in `{wrapper}`, which is for modules on the host",
        place=caller_place(),
        notes="a call of a ported model is a whole training step, optimizer included",
        help=remedy,
    )
