"""Run `forward` once on tensors without values, and write it down as a `StepGraph`.

`capture_step` is the way in for executors, exports and preflights.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Callable, Collection, ContextManager, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..diagnostics import (
    CaptureError,
    Finding,
    Place,
    PortingError,
    amended_refusals,
    are_refusals_collected,
    caller_place,
    refuse,
)
from ..host_tensors import HostTensor, host_tensors, iter_gradient_hooks, refuse_shared_memory
from ..module_attributes import materialise_lazy_modules
from ..structure import Structure, find_opaque_holder, flatten_tensors, rebuild
from ..support.installed_torch import check_torch
from ..torch_insides.modes import DisableTorchFunctionSubclass
from .device_tensor import DeviceTensor
from .dtypes import device_dtype
from .errors import Refusal, add_context
from .following import FirstRun
from .forward_run import ONE_AT_A_TIME, ForwardRun
from .losses import find_losses, single_final_loss, value_when_computed
from .module_state import is_variable, report_lost_writes, write_copies_of_constants
from .recording.recorder import Recorder
from .recording.reports import Reports
from .running_statistics import read_statistics_before_updates
from .step_graph import StepGraph, TensorInfo

__all__ = ["capture_step"]


def capture_step(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    loss: Optional[Callable[[Any, Any], torch.Tensor]] = None,
    mode: str = "training",
    prints: str = "error",
    host_features: str = "refused",
    allowed: Collection[str] = (),
    around_forward: Optional[Callable[[], ContextManager[Any]]] = None,
    node_facts: Optional[Callable[[], Mapping[str, Any]]] = None,
    listener: Optional[Callable[[Finding], None]] = None,
    autocast: Optional[torch.dtype] = None,
    first_run: Optional[FirstRun] = None,
    failures: Optional[List[Exception]] = None,
    starts_false: bool = False,
) -> StepGraph:
    """Run `model.forward` once on device tensors shaped like `args` and return the graph of what it does.

    `args` and `kwargs` are one micro-batch: tensors, anywhere inside tuples, lists, dictionaries and named tuples,
    become inputs of the graph; every other value is baked in. With `loss`, the last of `args` is the label and the
    graph ends in `loss(model(*args[:-1]), label)`; without, a training model must compute its loss itself. No value is
    computed, no parameter or buffer changes, and the global random generator is not touched.

    `mode` is "training" (exactly one final loss is demanded) or "inference". `prints` says what printing a tensor
    does: "error" (C010), or "unavailable" as on the device. `host_features` says what becomes of what only the host
    has, custom autograd functions (C005), gradient hooks (C007) and autocast (P001): "refused", or "ignored" as on the
    device, where they change nothing and are reported. With "computed" the backward of custom functions becomes part of
    the graph (C005 where that has no static form), hooks are refused, and autocast is ignored; the slugs `allowed`
    name what is ignored as well. `around_forward` makes a context that is entered for the
    run of `forward`; what `node_facts` returns when an operator is recorded is added to the `meta` of its node.
    `listener` gets each finding that is no error as soon as it arises, also where the capture fails in the end. With
    `autocast` (bfloat16) `forward` runs as under `torch.autocast` of that type and the casts are in the graph; regions
    of `forward` that switch it off are respected. `first_run` keeps what a second run can be held against.

    Where refusals are collected (`porting.diagnostics.collected_refusals`) the capture goes on after a fault: with an
    example in the place of a value, the other way round at first if it `starts_false`, and the shape for an example
    where a shape depends on values. What ends it nevertheless is put into `failures`, if that is a list, and the graph
    ends there. Such a graph is for looking at, and must not be run.

    Raises CaptureError: C001 for reading a value, C002 for shapes that depend on values, C003 for CPU tensors mixed
    in, C004-C007 and C012-C016 for other things a static graph cannot hold, L003-L005 for the loss. Exceptions of
    `forward` itself come through unchanged. The model is as it was before, whatever happens.

    >>> graph = capture_step(nn.Linear(4, 2), [torch.ones(3, 4)], mode="inference")
    >>> [(op.operator, op.shapes) for op in graph.operators]
    [('aten.linear.default', ((3, 2),))]
    """
    if mode not in ("training", "inference"):
        raise ValueError(f"mode must be 'training' or 'inference', not {mode!r}")
    if host_features not in ("refused", "ignored", "computed"):
        raise ValueError(f"host_features must be 'refused', 'ignored' or 'computed', not {host_features!r}")
    check_torch()
    reports = Reports(host_features=host_features, allowed=allowed, listener=listener)
    recorder = Recorder(
        reports=reports,
        prints=prints,
        is_training=mode == "training",
        node_facts=node_facts,
        autocast=autocast,
        starts_false=starts_false,
    )

    def amend(error: PortingError) -> PortingError:
        add_context(error, module=recorder.module, frame=sys._getframe(2))
        return error

    # whatever the caller switched off: what the graph holds depends on `mode` alone
    with ONE_AT_A_TIME, torch.inference_mode(False), torch.set_grad_enabled(recorder.is_training):
        try:
            with amended_refusals(amend):
                forward = ForwardRun(model, (list(args), dict(kwargs or {})), loss, around_forward or nullcontext)
                return _capture_forward(recorder, forward, first_run=first_run, ends=failures)
        except CaptureError as error:
            add_context(error, module=recorder.module, traceback=error.__traceback__)
            raise


def _capture_forward(
    recorder: Recorder, forward: ForwardRun, *, first_run: Optional[FirstRun], ends: Optional[List[Exception]]
) -> StepGraph:
    model, (args, kwargs) = forward.model, forward.arguments
    _refuse_hidden_tensors((args, kwargs), where="an argument", place=caller_place())
    materialise_lazy_modules(model, args[:-1] if forward.loss is not None else args, kwargs)
    # after the lazy layers have made theirs: what enters the graph is fixed from here on
    state = host_tensors(model)
    # weights that an executor owns are of a class whose properties are calls of Python
    with DisableTorchFunctionSubclass():
        if recorder.is_training:
            for error in iter_gradient_hooks(state):
                recorder.reports.refuse(error)
        # parameters and buffers come first among the arguments of the graph, inputs after them
        for host in state:
            recorder.add_placeholder(host.name, host.tensor, kind=host.kind)
    tensors, inputs = flatten_tensors((args, kwargs)), []
    for name, tensor in zip(_name_inputs(model, args, kwargs), tensors):
        if tensor.numel() == 0:
            refuse(Refusal.EMPTY_INPUT.error(shape=list(tensor.shape), name=name))
        inputs.append(recorder.add_placeholder(name, tensor, kind="input"))
    # operators such as `unsqueeze_` let the handle that `forward` has stand for another node
    as_placed = [recorder.shallow_copy(device) for device in inputs]
    on_device = replace(forward, arguments=rebuild((args, kwargs), inputs))
    output, loss_tensor = _run_forward(recorder, on_device, inputs, first_run=first_run, ends=ends)
    recorder.bodies.refuse_open()
    with DisableTorchFunctionSubclass():
        # two names for one memory are one tensor on the host and two on the device: only a write tells them apart
        refuse_shared_memory(
            state, lambda host: _is_written(recorder, host) or (recorder.is_training and host.tensor.requires_grad)
        )
        report_lost_writes(recorder, model, state)
        entered = list(zip(tensors, as_placed))
        return _make_step_graph(recorder, state, entered, output, loss_tensor, is_whole=not ends)


def _run_forward(
    recorder: Recorder,
    forward: ForwardRun,
    inputs: Sequence[DeviceTensor],
    *,
    first_run: Optional[FirstRun],
    ends: Optional[List[Exception]],
) -> Tuple[Any, Optional[DeviceTensor]]:
    """Run the model and its loss; return what the step returns, and the loss."""
    with forward.begin(recorder, recorder.reports.add, notes_paths=True):
        recorder.calls = None if first_run is None else first_run.log
        try:
            output, loss_tensor = forward.call(inputs)
            recorder.calls = None
            _refuse_hidden_tensors(output, where="the output")
        except Exception as error:
            if ends is None:
                raise
            # what was recorded so far is looked at
            ends.append(error)
            recorder.bodies.abandon(0)
            return (), None
    if first_run is not None:
        first_run.keep(forward, recorder, inputs, output)
    return output, loss_tensor


def _refuse_hidden_tensors(value: object, *, where: str, place: Optional[Place] = None) -> None:
    holder = find_opaque_holder(value)
    if holder is not None:
        hidden = flatten_tensors(list(holder) if isinstance(holder, (set, frozenset)) else list(vars(holder).values()))
        # once `forward` has returned, the line to show is the one that made the tensor
        places = (tensor.node.meta.get("place") for tensor in hidden if isinstance(tensor, DeviceTensor))
        refuse(Refusal.HIDDEN_TENSORS.error_at(next(places, place), where=where, kind=type(holder).__name__))


def _name_inputs(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[str]:
    """Name each input tensor after the parameter of `forward` that holds it."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        # functions of C++, and `forward` replaced by an object without a signature
        parameters = []
    fixed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    fixed += [f"input_{position}" for position in range(len(fixed), len(args))]
    names = []
    for name, value in [*zip(fixed, args), *kwargs.items()]:
        count = len(flatten_tensors(value))
        names += [name] if count == 1 else [f"{name}_{index}" for index in range(count)]
    return names


def _make_step_graph(
    recorder: Recorder,
    state: Sequence[HostTensor],
    inputs: Sequence[Tuple[torch.Tensor, DeviceTensor]],
    output: Structure,
    loss_tensor: Optional[DeviceTensor],
    *,
    is_whole: bool,
) -> StepGraph:
    leaves = flatten_tensors(output)
    returned = [leaf for leaf in leaves if isinstance(leaf, DeviceTensor)]
    # what ended early has not come to its loss
    loss_node, gradient, num_losses = _find_loss(recorder, loss_tensor) if is_whole else (None, False, 0)
    results = [tensor.node for tensor in returned] + ([loss_node] if loss_node is not None else [])
    # the loss comes last, whether `forward` returned it or not
    recorder.graph.output(tuple(results))
    write_copies_of_constants(recorder, state)
    read_statistics_before_updates(recorder, state)
    infos = [_describe_state(host) for host in state]
    written = [host for host in state if _is_written(recorder, host)]
    return StepGraph(
        graph=recorder.graph,
        parameters=tuple(info for info in infos if info.kind == "parameter"),
        buffers=tuple(info for info in infos if info.kind == "buffer"),
        constants=tuple(_describe_tensor(node.name, "constant", value, value) for node, value in recorder.constants),
        constant_values=tuple(value for _node, value in recorder.constants),
        inputs=tuple(
            _describe_tensor(device.node.meta["state_name"], "input", host, device) for host, device in inputs
        ),
        output_structure=output,
        outputs=tuple(_describe_tensor(tensor.node.name, "output", tensor, tensor) for tensor in returned),
        mode="training" if recorder.is_training else "inference",
        has_loss=loss_node is not None,
        loss_has_gradient=gradient,
        num_losses=num_losses,
        mutated_buffers=frozenset(host.name for host in written if host.kind == "buffer"),
        mutated_parameters=frozenset(host.name for host in written if host.kind == "parameter"),
        mutated_inputs=frozenset(i for i, (_, device) in enumerate(inputs) if recorder.facts.was_written(device)),
        host_outputs=len(leaves) - len(returned),
        findings=tuple(recorder.reports.findings),
        coercions=tuple(recorder.coercions),
    )


def _find_loss(recorder: Recorder, loss_tensor: Optional[DeviceTensor]) -> Tuple[Optional[torch.fx.Node], bool, int]:
    """Find the final loss of a training graph, whether a trainable parameter leads to it, and how many there are."""
    if not recorder.is_training and loss_tensor is None:
        return None, False, 0
    final, demoted = find_losses(recorder.graph)
    if loss_tensor is not None:
        node = computed = loss_tensor.node
    elif are_refusals_collected() and len(final) != 1:
        try:
            single_final_loss(recorder.graph)
        except CaptureError as error:
            refuse(error)
        return None, False, len(final) + len(demoted)
    else:
        computed = single_final_loss(recorder.graph)
        # the gradient path is that of the loss itself: a copy of its value has no facts
        node = value_when_computed(computed)
    return node, recorder.facts.node_tracks_gradient(computed), len(final) + len(demoted)


def _is_written(recorder: Recorder, host: HostTensor) -> bool:
    return is_variable(host.tensor) and recorder.facts.was_written(recorder.device_of(host.tensor))


def _describe_state(host: HostTensor) -> TensorInfo:
    # of the host: an operator such as `unsqueeze_` may have given the device's tensor another shape
    dtype = device_dtype(host.tensor.dtype)
    return TensorInfo(
        name=host.name,
        kind=host.kind,
        shape=tuple(host.tensor.shape),
        dtype=dtype,
        host_dtype=host.tensor.dtype,
        requires_grad=bool(host.tensor.requires_grad) and dtype.is_floating_point,
        aliases=host.aliases,
    )


def _describe_tensor(name: str, kind: str, host: torch.Tensor, device: torch.Tensor) -> TensorInfo:
    return TensorInfo(name=name, kind=kind, shape=tuple(device.shape), dtype=device.dtype, host_dtype=host.dtype)
