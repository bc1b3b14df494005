"""`capture_step`: one run of `forward` on tensors without values, written down as a `StepGraph`.

Back-propagation starts from the one loss operator that feeds no other. PopTorch's rule: every built-in loss function
and `identity_loss` counts; a loss that another one is computed from is an ordinary value; exactly one must remain.
"""

from __future__ import annotations

import inspect
import itertools
from contextlib import nullcontext
from typing import Any, Callable, Collection, ContextManager, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from ..diagnostics import CaptureError, Finding, Place, caller_place
from ..host_tensors import HostTensor, find_gradient_hooks, host_tensors, refuse_shared_memory
from ..module_attributes import materialise_lazy_modules
from ..structure import find_opaque_holder, flatten_tensors, rebuild
from .device_tensor import DeviceTensor
from .dtypes import device_dtype
from .errors import Refusal, add_context
from .following import FirstRun
from .forward_run import ONE_AT_A_TIME, ForwardRun, Loss
from .graph_flow import tensor_memories, tensor_memory, written_nodes
from .module_state import is_variable, report_lost_writes, write_copies_of_constants
from .operator_schema import operator_name
from .recording.recorder import Recorder
from .recording.reports import Reports
from .step_graph import StepGraph, TensorInfo

__all__ = ["capture_step", "find_losses", "single_final_loss", "value_when_computed"]


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
    reports = Reports(host_features=host_features, allowed=allowed, listener=listener)
    recorder = Recorder(
        reports=reports, prints=prints, is_training=mode == "training", node_facts=node_facts, autocast=autocast
    )
    # whatever the caller switched off: what the graph holds depends on `mode` alone
    with ONE_AT_A_TIME, torch.inference_mode(False), torch.set_grad_enabled(recorder.is_training):
        try:
            return _capture_forward(
                recorder, model, list(args), dict(kwargs or {}), loss=loss, around=around_forward, first_run=first_run
            )
        except CaptureError as error:
            add_context(error, module=recorder.module, traceback=error.__traceback__)
            raise


def _capture_forward(
    recorder: Recorder,
    model: nn.Module,
    args: List[Any],
    kwargs: Mapping[str, Any],
    *,
    loss: Optional[Loss],
    around: Optional[Callable[[], ContextManager[Any]]],
    first_run: Optional[FirstRun],
) -> StepGraph:
    _refuse_hidden_tensors((args, kwargs), where="an argument", place=caller_place())
    materialise_lazy_modules(model, args[:-1] if loss is not None else args, kwargs)
    # after the lazy layers have made theirs: what enters the graph is fixed from here on
    state = host_tensors(model)
    # weights that an executor owns are of a class whose properties are calls of Python
    with torch._C.DisableTorchFunctionSubclass():
        if recorder.is_training:
            for error in find_gradient_hooks(state):
                recorder.reports.refuse(error)
        # parameters and buffers come first among the arguments of the graph, inputs after them
        for host in state:
            recorder.add_placeholder(host.name, host.tensor, kind=host.kind)
    tensors, inputs = flatten_tensors((args, kwargs)), []
    for name, tensor in zip(_name_inputs(model, args, kwargs), tensors):
        if tensor.numel() == 0:
            raise Refusal.EMPTY_INPUT.error(shape=list(tensor.shape), name=name)
        inputs.append(recorder.add_placeholder(name, tensor, kind="input"))
    # operators such as `unsqueeze_` let the handle that `forward` has stand for another node
    as_placed = [recorder.shallow_copy(device) for device in inputs]
    forward = ForwardRun(model, rebuild((args, kwargs), inputs), loss, around or nullcontext)
    with forward.begin(recorder, recorder.reports.add, notes_paths=True):
        recorder.calls = None if first_run is None else first_run.log
        output, loss_tensor = forward.call(inputs)
        recorder.calls = None
        _refuse_hidden_tensors(output, where="the output")
    if first_run is not None:
        first_run.keep(forward, recorder, inputs, output)
    recorder.bodies.refuse_open()
    with torch._C.DisableTorchFunctionSubclass():
        # two names for one memory are one tensor on the host and two on the device: only a write tells them apart
        refuse_shared_memory(
            state, lambda host: _is_written(recorder, host) or (recorder.is_training and host.tensor.requires_grad)
        )
        report_lost_writes(recorder, model, state)
        return _make_step_graph(recorder, state, list(zip(tensors, as_placed)), output, loss_tensor)


def _refuse_hidden_tensors(value: Any, *, where: str, place: Optional[Place] = None) -> None:
    holder = find_opaque_holder(value)
    if holder is not None:
        hidden = flatten_tensors(list(holder) if isinstance(holder, (set, frozenset)) else list(vars(holder).values()))
        # once `forward` has returned, the line to show is the one that made the tensor
        places = (tensor.node.meta.get("place") for tensor in hidden if isinstance(tensor, DeviceTensor))
        raise Refusal.HIDDEN_TENSORS.error_at(next(places, place), where=where, kind=type(holder).__name__)


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
    output: Any,
    loss_tensor: Optional[DeviceTensor],
) -> StepGraph:
    leaves = flatten_tensors(output)
    returned = [leaf for leaf in leaves if isinstance(leaf, DeviceTensor)]
    loss_node, gradient, num_losses = _find_loss(recorder, loss_tensor)
    results = [tensor.node for tensor in returned] + ([loss_node] if loss_node is not None else [])
    # the loss comes last, whether `forward` returned it or not
    recorder.graph.output(tuple(results))
    write_copies_of_constants(recorder, state)
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


_LOSS_OPERATORS = frozenset(
    "identity_loss nll_loss nll_loss2d nll_loss_nd cross_entropy_loss l1_loss mse_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div poisson_nll_loss smooth_l1_loss soft_margin_loss hinge_embedding_loss "
    "cosine_embedding_loss margin_ranking_loss triplet_margin_loss ctc_loss".split()
)


def find_losses(graph: torch.fx.Graph) -> Tuple[List[torch.fx.Node], List[torch.fx.Node]]:
    """Return the final losses of `graph` and the demoted ones, those that another loss is computed from."""
    # a loss that torch computes from several operators says itself which of them it is
    losses = [node for node in graph.nodes if node.meta.get("is_loss", _name_operator(node) in _LOSS_OPERATORS)]
    final = [loss for loss in losses if not _follow_values(loss).intersection(losses)]
    return final, [loss for loss in losses if loss not in final]


def _name_operator(node: torch.fx.Node) -> str:
    return operator_name(node.target) if isinstance(node.target, torch._ops.OpOverload) else ""


def _follow_values(start: torch.fx.Node) -> Set[torch.fx.Node]:
    """Return the nodes whose value depends on that of `start`, also by way of memory that is written to in place."""
    reached = {start}
    memory: Set[int] = set()
    for node in itertools.dropwhile(lambda node: node is not start, start.graph.nodes):
        if any(used in reached or tensor_memory(used) in memory for used in node.all_input_nodes):
            # what is written in place is seen through all views of that memory from here on
            reached.add(node)
            memory.update(tensor_memories(written_nodes(node)))
    return reached - {start}


def value_when_computed(loss: torch.fx.Node) -> torch.fx.Node:
    """Return a node with the value that `loss` has when it is computed: a copy where later operators write to it."""
    later = itertools.dropwhile(lambda node: node is not loss, loss.graph.nodes)
    written = (target for node in itertools.islice(later, 1, None) for target in written_nodes(node))
    if tensor_memory(loss) not in map(tensor_memory, written):
        return loss
    with loss.graph.inserting_after(loss):
        copy = loss.graph.call_function(torch.ops.aten.clone.default, (loss,))
    value = loss.meta["val"]
    with value.fake_mode:
        # the copy has memory of its own, which is what its users are told by
        copy.meta.update(val=value.clone(), module_path=loss.meta.get("module_path", ""), place=loss.meta.get("place"))
    return copy


def single_final_loss(graph: torch.fx.Graph) -> torch.fx.Node:
    """Return the node that back-propagation starts from.

    Raises CaptureError L004 when `graph` has no loss and L005 when it has several that are independent of each other.
    """
    final, _demoted = find_losses(graph)
    if not final:
        others = [node for node in graph.nodes if _name_operator(node).endswith("_loss")]
        raise CaptureError.of(
            "L004",
            message="`forward` of the training model computes no loss",
            place=others[-1].meta.get("place") if others else None,
            label="the device does not take this operator for a loss" if others else "",
            notes=("most built-in loss functions count, and so does `poptorch.identity_loss`",),
            help=(
                "compute the loss in `forward`, with a loss function of torch, and pass the label to the call",
                "a loss written by hand is marked: `poptorch.identity_loss(value, 'mean')`",
                "with `to_ipu`, pass the loss instead: `to_ipu(model, loss)`",
            ),
        )
    if len(final) > 1:
        places = [place for place in (loss.meta.get("place") for loss in final) if place is not None]
        raise CaptureError.of(
            "L005",
            message=f"`forward` computes {len(final)} independent losses",
            place=final[-1].meta.get("place"),
            label="one of several final losses",
            notes=tuple(f"a loss is computed at {place}" for place in places),
            help="add them up and mark the sum: `poptorch.identity_loss(a + b, reduction='none')`",
        )
    return final[0]
