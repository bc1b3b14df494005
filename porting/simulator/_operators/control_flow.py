"""Implement `for_loop` and `cond`, control flow that the device decides in each execution."""

from __future__ import annotations

import numbers
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import torch

from ...capture.device_tensor import DeviceTensor
from ...capture.errors import host_tensor_error
from ...capture.plain_values import dtype_name
from ...capture.recording.recorder import Recorder
from ...capture.subgraphs import run_cond, run_for_loop
from ..custom_ops import make_list
from ..errors import compile_error
from .op_library import copy_list, define_operator, do_nothing

__all__ = ["cond", "for_loop"]

_library = torch.ops.poptorch


def for_loop(count: int, body: Callable[..., Any], inputs: List[torch.Tensor]) -> List[torch.Tensor]:
    """Run `body(*inputs)` `count` times on the device, each time on its last results; return the final ones.

    `body` must return as many tensors as it gets, of the same shapes and types; one alone need not be in a list.
    Inputs go in by value. `body` may read other tensors of `forward`, and write only to its inputs and to what it
    makes itself. For inference only. A plain run on the CPU goes through `body` exactly once, as in PopTorch.

    Raises ValueError if `inputs` is no list of tensors or `count` no integer from 0 on, `poptorch.Error` in training
    and for a body whose results do not fit its inputs.

    >>> for_loop(5, lambda x: x * 2, [torch.ones(2)])
    [tensor([2., 2.])]
    """
    is_integer = isinstance(count, numbers.Integral) and not isinstance(count, bool)
    if not is_integer or count < 0:
        found = count if is_integer else type(count).__name__
        raise ValueError(
            f"poptorch.for_loop expects the number of iterations (count) to be a non-negative int. (Object is {found})"
        )
    _check_list(inputs, "poptorch.for_loop expects input tensors (inputs) to be a list of tensors.")
    # The body may write to its inputs, and each run finds them as the one before has left them: they must not share
    # memory with the tensors that `forward` uses later.
    cloned = [tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs]
    with _abandon_on_error(cloned):
        _library.start_for_loop(cloned)
        outputs = _list_tensors(body(*cloned), "the body of poptorch.for_loop")
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
    of equal shapes and types. All values are copies: a body's writes are visible outside only if it returns them. For
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
        return _list_tensors(result, "the body of poptorch.cond")
    # A trace goes through both bodies: which of them runs is known at each execution only. The operators in between
    # tell the recorder where one ends and the other begins.
    with _abandon_on_error([condition]):
        _library.start_if_block(condition)
        then_outputs = _list_tensors(then_body(*(tensor.clone() for tensor in then_inps)), "then_body of poptorch.cond")
        _library.start_else_block(then_outputs)
        else_outputs = _list_tensors(else_body(*(tensor.clone() for tensor in else_inps)), "else_body of poptorch.cond")
        return list(_library.end_if_block(else_outputs, condition))


def _check_list(inputs: object, message: str) -> None:
    if not isinstance(inputs, list):
        raise ValueError(f"{message} (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{message} (Object contained in list at index {index} is not torch.tensor)")


@contextmanager
def _abandon_on_error(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Remove a loop or branch that an exception ends from the graph; `forward` may catch it and continue."""
    recorder: Any = next((tensor.recorder for tensor in tensors if isinstance(tensor, DeviceTensor)), None)
    depth = len(recorder.bodies.kinds) if recorder is not None else 0
    try:
        yield
    except BaseException:
        if recorder is not None:
            recorder.bodies.abandon(depth)
        raise


def _list_tensors(result: object, what: str) -> List[torch.Tensor]:
    outputs = make_list(result)
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise compile_error(f"{what} must return tensors, got {type(output).__name__}.")
    return outputs


# -- on the device -----------------------------------------------------------------------------------------------------


def _start_for_loop(recorder: Recorder, inputs: Sequence[torch.Tensor]) -> None:
    if recorder.is_training:
        raise compile_error("poptorch.for_loop() is only supported in inference.")
    recorder.bodies.open("for_loop", inputs=_require_device(inputs))


def _end_for_loop(
    recorder: Recorder, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], count: int
) -> List[DeviceTensor]:
    _require_open(recorder, "for_loop", "end_for_loop")
    expected = _require_device(inputs)
    # a body that computes in a type of the host's ends in the type that its inputs have on the device
    results = recorder.casts.as_types_of(_require_device(outputs), expected)
    if len(results) != len(expected):
        raise compile_error(
            f"The body of poptorch.for_loop() must return as many tensors as it has inputs: expected {len(expected)} "
            f"but got {len(results)}."
        )
    _check_forms(
        expected,
        results,
        "The body of poptorch.for_loop() must return tensors like its inputs: input {index} is {one}, but output "
        "{index} is {other}.",
    )
    body, captured = recorder.bodies.close(results)
    return _record_call(recorder, run_for_loop, (count, body, expected, captured), results)


def _start_if_block(recorder: Recorder, condition: torch.Tensor) -> None:
    if recorder.is_training:
        raise compile_error("poptorch.cond() is only supported in inference.")
    (condition,) = _require_device([condition])
    if condition.numel() != 1:
        raise compile_error(
            f"The condition of poptorch.cond() must have a single element, got shape {list(condition.shape)}."
        )
    recorder.bodies.open("then", copies_captured=True)


def _start_else_block(recorder: Recorder, outputs: Sequence[torch.Tensor]) -> None:
    _require_open(recorder, "then", "start_else_block")
    results = _require_device(outputs)
    then = (*recorder.bodies.close(results), results)
    # beside the first body, because the operator is recorded when both are known
    recorder.bodies.open("else", copies_captured=True, beside=then)


def _end_if_block(recorder: Recorder, outputs: Sequence[torch.Tensor], condition: torch.Tensor) -> List[DeviceTensor]:
    _require_open(recorder, "else", "end_if_block")
    then_body, then_captured, then_results = recorder.bodies.beside
    results = recorder.casts.as_types_of(_require_device(outputs), then_results)
    if len(then_results) != len(results):
        raise compile_error(
            "The two bodies of poptorch.cond() must return equally many tensors, but then_body returns "
            f"{len(then_results)} and else_body {len(results)}."
        )
    _check_forms(
        then_results,
        results,
        "The two bodies of poptorch.cond() must return tensors of equal shape and type, but output {index} is {one} of "
        "then_body and {other} of else_body.",
    )
    else_body, else_captured = recorder.bodies.close(results)
    return _record_call(recorder, run_cond, (condition, then_body, then_captured, else_body, else_captured), results)


def _check_forms(expected: Sequence[torch.Tensor], results: Sequence[torch.Tensor], message: str) -> None:
    """Raise `message`, with index and forms filled in, for tensors that differ in type or shape."""
    for index, pair in enumerate(zip(expected, results)):
        one, other = (f"{dtype_name(tensor.dtype)}{list(tensor.shape)}" for tensor in pair)
        if one != other:
            raise compile_error(message.format(index=index, one=one, other=other))


def _record_call(
    recorder: Recorder, function: Callable[..., Any], arguments: Tuple[Any, ...], results: Sequence[DeviceTensor]
) -> List[DeviceTensor]:
    fakes = [recorder.make_fake(tensor.shape, tensor.dtype) for tensor in results]
    return list(recorder.call_function(function, arguments, fakes))


def _require_device(tensors: Sequence[torch.Tensor]) -> List[DeviceTensor]:
    for tensor in tensors:
        if not isinstance(tensor, DeviceTensor):
            raise host_tensor_error(tensor)
    return list(tensors)  # type: ignore[arg-type]


def _require_open(recorder: Recorder, kind: str, operator: str) -> None:
    if not recorder.bodies.kinds or recorder.bodies.kinds[-1] != kind:
        raise compile_error(f"poptorch::{operator} ends what nothing began, is the IR malformed?")


define_operator("start_for_loop(Tensor[] inputs) -> ()", do_nothing, record=_start_for_loop)
define_operator(
    "end_for_loop(Tensor[] outputs, Tensor[] inputs, int count) -> Tensor[]", copy_list, record=_end_for_loop
)
define_operator("start_if_block(Tensor condition) -> ()", do_nothing, record=_start_if_block)
define_operator("start_else_block(Tensor[] outputs) -> ()", do_nothing, record=_start_else_block)
define_operator("end_if_block(Tensor[] outputs, Tensor condition) -> Tensor[]", copy_list, record=_end_if_block)
