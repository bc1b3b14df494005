"""Custom autograd functions with their own backward: both become part of the graph.

`forward` is recorded where it is called, without a gradient path, and `backward` as a body: its arguments are the
gradients of the results, then what it reads of the graph around it, as the tensors that were saved for it.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import torch
from torch.autograd.function import FunctionCtx

from ...diagnostics import CaptureError, Finding, Severity, caller_place
from ...support.function_modes import Args, Kwargs
from ...torch_insides.autograd import has_own_setup_context, has_own_vjp
from ..device_tensor import DeviceTensor, is_host_tensor
from ..errors import Refusal
from ..subgraphs import Body, run_custom_gradient
from .recorder import Recorder
from .result_shapes import result_shape

__all__ = ["record_with_backward"]

aten = torch.ops.aten


def record_with_backward(recorder: Recorder, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record a call of the custom autograd function `cls` with the `backward` that it brings; return its results.

    Raises CaptureError C005 for one that has no static form.
    """
    context = _Context()
    # the user's code may ask which inputs need a gradient, to save less
    tracked = [isinstance(arg, DeviceTensor) and recorder.facts.tracks_gradient(arg) for arg in args]
    context.needs_input_grad = tuple(tracked)
    with torch.no_grad():
        if not has_own_setup_context(cls):
            returned = cls.forward(context, *args, **kwargs)
        else:
            returned = cls.forward(*args, **kwargs)
            cls.setup_context(context, args, returned)
        results = list(returned) if isinstance(returned, tuple) else [returned]
        _refuse_without_static_form(cls, context, results)
        recorder.sync_grad_mode()  # the body has no modes of its own
        depth = len(recorder.bodies.kinds)
        try:
            body, captured, receivers = _record_backward(recorder, cls, context, args, results)
        except CaptureError as error:
            # what was recorded of the body is left behind: a program that catches the error goes on outside of it
            recorder.bodies.abandon(depth)
            found = error.finding
            raise Refusal.CUSTOM_FUNCTION.error(
                name=cls.__name__,
                label="its `backward` has no static form",
                notes=[f"{found.code} in its `backward`, at {found.place}: {found.message}"],
            ) from None
    recorder.sync_grad_mode()
    tensors = [value for value in results if isinstance(value, DeviceTensor)]
    constant = {id(tensor) for tensor in context.non_differentiable}
    differentiable = tuple(tensor.dtype.is_floating_point and id(tensor) not in constant for tensor in tensors)
    # this call stands between the results of `forward` and whoever uses them: its results are the tracked ones
    outputs = recorder.call_function(
        run_custom_gradient,
        (body, captured, receivers, tuple(tensors), differentiable),
        [result_shape(recorder.fake_mode, aten.clone.default, (tensor,), {}) for tensor in tensors],
    )
    for output, is_differentiable in zip(outputs, differentiable):
        recorder.facts.note_results([output], receivers, tracked=is_differentiable and bool(receivers))
    recorder.reports.add_once(
        Finding(
            "C005",
            severity=Severity.NOTE,
            message=f"`{cls.__name__}` is a custom autograd function: here its `backward` runs, on IPUs it is an error",
            place=caller_place(),
            help="write it with differentiable operators before it goes to an IPU",
        )
    )
    made = iter(outputs)
    values = [next(made) if isinstance(value, DeviceTensor) else value for value in results]
    return tuple(values) if isinstance(returned, tuple) else values[0]


class _Context(FunctionCtx):
    """The `ctx` of a function that is captured: what is saved is there again at once."""

    needs_input_grad: Tuple[bool, ...] = ()
    to_save: Tuple[Any, ...] = ()
    dirty_tensors: Tuple[Any, ...] = ()
    non_differentiable: Tuple[Any, ...] = ()
    materialize_grads = True

    @property
    def saved_tensors(self) -> Tuple[Any, ...]:
        """What `save_for_backward` got."""
        return tuple(self.to_save)

    saved_variables = saved_tensors  # its name in early torch, which torch still knows


def _refuse_without_static_form(cls: Any, context: _Context, results: Sequence[Any]) -> None:
    reason = ""
    if context.dirty_tensors:
        reason = "it writes to its arguments (`mark_dirty`)"
    elif any(map(is_host_tensor, results)):
        reason = "it returns a tensor of the host"
    elif not context.materialize_grads and len(results) > 1:
        reason = "which of its gradients are None is only known while it runs (`set_materialize_grads(False)`)"
    if reason:
        raise Refusal.CUSTOM_FUNCTION.error(name=cls.__name__, label=reason)


def _record_backward(
    recorder: Recorder, cls: Any, context: _Context, args: Sequence[Any], results: Sequence[Any]
) -> Tuple[Body, Tuple[torch.fx.Node, ...], Tuple[DeviceTensor, ...]]:
    """Return the body, what it reads of the graph around it, and the arguments that it has a gradient for."""
    recorder.bodies.open(f"backward of {cls.__name__}")
    gradients = [
        recorder.add_placeholder(f"gradient_{index}", value.fake, kind="input")
        if isinstance(value, DeviceTensor)
        else None
        for index, value in enumerate(results)
    ]
    backward = cls.vjp if has_own_vjp(cls) else cls.backward
    # autograd calls it outside of the regions that `forward` was called in
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        returned = backward(context, *gradients)
    found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    # in torch's own words, as eager PyTorch would say it
    if len(found) < len(args) or any(value is not None for value in found[len(args) :]):
        raise RuntimeError(
            f"function {cls.__name__}Backward returned an incorrect number of gradients "
            f"(expected {len(args)}, got {len(found)})"
        )
    pairs = [
        (arg, gradient)
        for arg, gradient, needs in zip(args, found, context.needs_input_grad)
        if needs and isinstance(gradient, DeviceTensor)
    ]
    body, captured = recorder.bodies.close([gradient for _arg, gradient in pairs])
    return body, captured, tuple(arg for arg, _gradient in pairs)
