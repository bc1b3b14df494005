"""Wrappers that torch has for plain modules: around a ported model they are refused, with what to do instead."""

from __future__ import annotations

import sys

from torch import nn

from ..diagnostics import DeviceError, caller_place

__all__ = ["refuse_data_parallel", "refuse_wrapper_that_asks"]

_REPLICAS = (
    "spread a batch over devices by `PortOptions(replicas=N)`; several processes start with `poprun` or `torchrun`"
)
_ENGINE = "leave `torch.compile` out: the whole step is compiled already; `PortOptions(engine=...)` chooses how"

# wrappers that ask what they get for an attribute, before they do anything with it
_ASKED_BY = {
    "_ddp_params_and_buffers_to_ignore": ("DistributedDataParallel", _REPLICAS),
    "_torchdynamo_orig_callable": ("torch.compile", _ENGINE),
}


def refuse_wrapper_that_asks(attribute: str) -> None:
    """Raise DeviceError D003 if `attribute` is one by which a wrapper is known."""
    if attribute in _ASKED_BY:
        raise _wrapper_error(*_ASKED_BY[attribute])


def refuse_data_parallel() -> None:
    """Raise DeviceError D003 in a call that `nn.DataParallel` makes, which asks for nothing and runs what it was given.

    For the function that a ported model's `__call__` calls.
    """
    if sys._getframe(3).f_code is _DATA_PARALLEL:
        raise _wrapper_error("DataParallel", _REPLICAS)


_DATA_PARALLEL = nn.DataParallel.forward.__code__


def _wrapper_error(wrapper: str, remedy: str) -> DeviceError:
    return DeviceError.of(
        "D003",
        message=f"a ported model is wrapped in `{wrapper}`, which is for modules on the host",
        place=caller_place(),
        notes="a call of a ported model is a whole training step, optimizer included",
        help=remedy,
    )
