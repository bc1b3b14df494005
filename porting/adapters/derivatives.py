"""Refuse derivatives of a ported call that its device does not compute, in the line that asks for them.

A device returns gradients as numbers, without a record for autograd. What is computed from them, such as a penalty,
would train without its own gradient. Host loops and the explanation of failed calls use it.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, NoReturn, Optional, Sequence

import torch
from torch import nn

from porting.diagnostics import CaptureError
from porting.torch_insides.autograd import is_mapped_gradient, is_transforming

__all__ = [
    "explain_transform",
    "read_saved_tensors",
    "refuse_calls_of_transforms",
    "refuse_dual_numbers",
    "refuse_higher_derivatives",
]

_PLAIN = (
    "compute the loss of this step with the plain model, which has the same weights: `ported.model(x)`",
    "where a trainer library has the loop: `with calls_on_host():`, of `porting.integrations`, around the calls",
)


class _Texts(NamedTuple):
    """What is asked for, and what helps before the plain model does."""

    message: str
    label: str = "the device computes the gradients of one backward pass, and hands them over as numbers"
    help: Sequence[str] = ()


_HIGHER = _Texts("a gradient of a gradient is asked for: `create_graph=True`")
_FORWARD = _Texts("a derivative in forward mode is asked for of a ported call")
_MAPPED = _Texts(
    "many gradients are asked for at once: `is_grads_batched=True`, or `vectorize=True`",
    help=("leave the argument out: they are computed one after another",),
)
_FUNCTIONAL = _Texts(
    "a ported model is called with weights that are not its own, as by `torch.func.functional_call`",
    label="the device has the model's weights, and computes the gradients of those",
    help=("give them to the plain model: `functional_call(ported.model, weights, x)`",),
)
_FREED = _Texts(
    "the backward pass of a ported call runs a second time, and its graph is gone",
    label="the first pass has freed it",
    help=("keep it: `retain_graph=True` in the first pass", "or call the model again"),
)
_TRANSFORMED = _Texts(
    "a ported model is called inside a transform of `torch.func`",
    help=("for gradients alone, with `loop='host'`: `torch.autograd.grad(ported(x).sum(), x)`",),
)


def explain_transform() -> Optional[CaptureError]:
    """Return the error L015 inside `torch.func.grad`, `vmap` and the like, whose tensors no device reads, or None."""
    return _make_error(_TRANSFORMED) if is_transforming() else None


def refuse_calls_of_transforms(weights: Iterable[torch.Tensor]) -> None:
    """Raise CaptureError L015 inside transforms of `torch.func`, and for weights that `functional_call` has given."""
    error = explain_transform()
    if error is None and not all(isinstance(weight, nn.Parameter) for weight in weights):
        error = _make_error(_FUNCTIONAL, helps=_PLAIN[1:])
    if error is not None:
        raise error


def refuse_higher_derivatives(cotangents: Sequence[Optional[torch.Tensor]]) -> None:
    """Raise CaptureError L015 in a backward pass that is to be differentiated itself, or is many at once."""
    # autograd records its own backward pass exactly where it is to be differentiated
    if torch.is_grad_enabled():
        raise _make_error(_HIGHER)
    is_mapped = any(cotangent is not None and is_mapped_gradient(cotangent) for cotangent in cotangents)
    if is_mapped or is_transforming():
        raise _make_error(_MAPPED)


def refuse_dual_numbers(_context: object, *_tangents: object) -> NoReturn:
    """Raise CaptureError L015 for a call in forward mode."""
    raise _make_error(_FORWARD)


def read_saved_tensors(context: torch.autograd.function.BackwardCFunction) -> Sequence[torch.Tensor]:
    """Return what a backward pass has saved; CaptureError L015 where a pass before it has freed that.

    For a tensor that was written to since, torch raises its own RuntimeError.
    """
    try:
        saved: Sequence[torch.Tensor] = context.saved_tensors
    except RuntimeError as error:
        if "a second time" not in str(error):
            raise
        raise _make_error(_FREED, helps=()) from None
    return saved


def _make_error(texts: _Texts, *, helps: Sequence[str] = _PLAIN) -> CaptureError:
    return CaptureError.at_caller("L015", message=texts.message, label=texts.label, help=(*texts.help, *helps))
