"""`for_loop` and `cond`: control flow that happens on the device, at each execution anew."""

from __future__ import annotations

import numbers
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Sequence

import torch

from ...capture.device_operators import define_device_operator
from ...capture.device_tensor import DeviceTensor
from ...capture.errors import host_tensor_error
from ...capture.subgraphs import run_cond, run_for_loop
from ..errors import Error, compile_error
from . import op_library  # noqa: F401 - defines the operators

__all__ = ["cond", "for_loop"]

_library = torch.ops.poptorch


def for_loop(count: int, body: Callable[..., Any], inputs: List[torch.Tensor]) -> List[torch.Tensor]:
    """Run `body(*inputs)` `count` times on the device, each time on what it returned before; return the last results.

    `body` must return as many tensors as it gets, of the same shapes and types; one alone need not be in a list.
    Inputs go in by value. `body` may read other tensors of `forward`, and write only to its inputs and to what it
    makes itself. For inference only. A plain run on the CPU goes through `body` exactly once, as in PopTorch.

    Raises ValueError if `inputs` is no list of tensors or `count` no integer from 0 on, `poptorch.Error` in training
    and for a body whose results do not fit its inputs.

    >>> for_loop(5, lambda x: x * 2, [torch.ones(2)])
    [tensor([2., 2.])]
    """
    _check_count(count)
    _check_list(inputs, "poptorch.for_loop expects input tensors (inputs) to be a list of tensors.")
    cloned = [tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs]
    with _whole_or_not_at_all(cloned):
        _library.start_for_loop(cloned)
        outputs = _as_list(body(*cloned), "the body of poptorch.for_loop")
        return list(_library.end_for_loop(outputs, cloned, int(count)))


def cond(
    condition: torch.Tensor,
    then_body: Callable[..., Any],
    then_inps: List[torch.Tensor],
    else_body: Callable[..., Any],
    else_inps: List[torch.Tensor],
) -> List[torch.Tensor]:
    """Run `then_body(*then_inps)` if `condition` holds, else `else_body(*else_inps)`; return the results as a list.

    On the device the choice is made at each execution; both bodies are compiled, and must return equally many tensors
    of equal shapes and types. All values are copies: what a body writes is seen outside only if it returns it. For
    inference only. A plain run on the CPU is Python's `if`.

    Raises ValueError for inputs that are no lists of tensors, `poptorch.Error` in training and for bodies whose results
    differ in form.

    >>> cond(torch.tensor(False), torch.neg, [torch.ones(2)], torch.exp, [torch.zeros(2)])
    [tensor([1., 1.])]
    """
    for inputs in (then_inps, else_inps):
        _check_list(inputs, "poptorch.cond expects then_inps and else_inps tensors to be a list of tensors.")
    if not isinstance(condition, DeviceTensor):
        result = then_body(*then_inps) if condition else else_body(*else_inps)
        return _as_list(result, "the body of poptorch.cond")
    with _whole_or_not_at_all([condition]):
        _library.start_if_block(condition)
        then_outputs = _as_list(then_body(*_clones(then_inps)), "then_body of poptorch.cond")
        _library.start_else_block(then_outputs)
        else_outputs = _as_list(else_body(*_clones(else_inps)), "else_body of poptorch.cond")
        return list(_library.end_if_block(else_outputs, condition))


def _check_count(count: Any) -> None:
    if not isinstance(count, numbers.Integral) or isinstance(count, bool):
        kind = f"Object is {type(count).__name__}"
    elif count < 0:
        kind = f"Object is {count}"
    else:
        return
    raise ValueError(f"poptorch.for_loop expects the number of iterations (count) to be a non-negative int. ({kind})")


def _check_list(inputs: Any, message: str) -> None:
    if not isinstance(inputs, list):
        raise ValueError(f"{message} (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{message} (Object contained in list at index {index} is not torch.tensor)")


@contextmanager
def _whole_or_not_at_all(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Leave nothing in the graph of a loop or branch that an exception ends; `forward` may catch it and go on."""
    recorder: Any = next((tensor.recorder for tensor in tensors if isinstance(tensor, DeviceTensor)), None)
    depth = len(recorder.bodies.kinds) if recorder is not None else 0
    try:
        yield
    except BaseException:
        if recorder is not None:
            recorder.bodies.abandon(depth)
        raise


def _clones(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def _as_list(result: Any, what: str) -> List[torch.Tensor]:
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise compile_error(f"{what} must return tensors, got {type(output).__name__}.")
    return outputs


# -- on the device -----------------------------------------------------------------------------------------------------


def _start_for_loop(recorder: Any, inputs: Sequence[torch.Tensor]) -> None:
    if recorder.is_training:
        raise compile_error("poptorch.for_loop() is only supported in inference.")
    recorder.bodies.open("for_loop", inputs=_on_device(inputs))


def _end_for_loop(
    recorder: Any, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], count: int
) -> List[DeviceTensor]:
    _require_open(recorder, "for_loop", "end_for_loop")
    expected = _on_device(inputs)
    results = recorder.casts.as_types_of(_on_device(outputs), expected)
    if len(results) != len(expected):
        raise compile_error(
            f"The body of poptorch.for_loop() must return as many tensors as it has inputs: expected {len(expected)} "
            f"but got {len(results)}."
        )
    for index, (result, before) in enumerate(zip(results, expected)):
        if _form(result) != _form(before):
            raise compile_error(
                f"The body of poptorch.for_loop() must return tensors like its inputs: input {index} is "
                f"{_form(before)}, but output {index} is {_form(result)}."
            )
    body, captured = recorder.bodies.close(results)
    fakes = [recorder.make_fake(tensor.shape, tensor.dtype) for tensor in results]
    return list(recorder.call_function(run_for_loop, (count, body, expected, captured), fakes))


def _start_if_block(recorder: Any, condition: torch.Tensor) -> None:
    if recorder.is_training:
        raise compile_error("poptorch.cond() is only supported in inference.")
    (condition,) = _on_device([condition])
    if condition.numel() != 1:
        raise compile_error(
            f"The condition of poptorch.cond() must have a single element, got shape {list(condition.shape)}."
        )
    recorder.bodies.open("then", copies_captured=True)


def _start_else_block(recorder: Any, outputs: Sequence[torch.Tensor]) -> None:
    _require_open(recorder, "then", "start_else_block")
    results = _on_device(outputs)
    then = (*recorder.bodies.close(results), results)
    recorder.bodies.open("else", copies_captured=True, beside=then)


def _end_if_block(recorder: Any, outputs: Sequence[torch.Tensor], condition: torch.Tensor) -> List[DeviceTensor]:
    _require_open(recorder, "else", "end_if_block")
    then_body, then_captured, then_results = recorder.bodies.beside
    results = recorder.casts.as_types_of(_on_device(outputs), then_results)
    _check_branches(then_results, results)
    else_body, else_captured = recorder.bodies.close(results)
    fakes = [recorder.make_fake(tensor.shape, tensor.dtype) for tensor in results]
    arguments = (condition, then_body, then_captured, else_body, else_captured)
    return list(recorder.call_function(run_cond, arguments, fakes))


def _check_branches(then_results: Sequence[DeviceTensor], else_results: Sequence[DeviceTensor]) -> None:
    if len(then_results) != len(else_results):
        raise compile_error(
            "The two bodies of poptorch.cond() must return equally many tensors, but then_body returns "
            f"{len(then_results)} and else_body {len(else_results)}."
        )
    for index, (one, other) in enumerate(zip(then_results, else_results)):
        if _form(one) != _form(other):
            raise compile_error(
                f"The two bodies of poptorch.cond() must return tensors of equal shape and type, but output {index} is "
                f"{_form(one)} of then_body and {_form(other)} of else_body."
            )


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).replace('torch.', '')}{list(tensor.shape)}"


def _on_device(tensors: Sequence[torch.Tensor]) -> List[DeviceTensor]:
    for tensor in tensors:
        if not isinstance(tensor, DeviceTensor):
            raise host_tensor_error(tensor)
    return list(tensors)  # type: ignore[arg-type]


def _require_open(recorder: Any, kind: str, operator: str) -> None:
    if not recorder.bodies.kinds or recorder.bodies.kinds[-1] != kind:
        raise _unbalanced(operator)


def _unbalanced(operator: str) -> Error:
    return compile_error(f"poptorch::{operator} ends what nothing began, is the IR malformed?")


for _operator, _record in (
    (_library.start_for_loop, _start_for_loop),
    (_library.end_for_loop, _end_for_loop),
    (_library.start_if_block, _start_if_block),
    (_library.start_else_block, _start_else_block),
    (_library.end_if_block, _end_if_block),
):
    define_device_operator(_operator.default, record=_record)
