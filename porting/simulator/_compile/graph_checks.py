"""Check a captured graph: pipeline stages and IPUs, overlapped I/O, replicated buffers, and operators.

`compile_model` runs them in PopTorch's order, and applies what the device leaves out.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NoReturn, Sequence

import torch
from torch import nn

from ...analysis.operator_support import RefusedCall, collect_attention, find_refused_call, iter_calls
from ...capture import StepGraph
from ...capture.graph_flow import output_nodes, tensor_memories
from ...capture.operator_schema import change_arguments, declared_written_arguments
from ...diagnostics import Finding, join_names
from ...torch_insides.operators import OpOverload
from .._device.device_target import count_reserved_ipus, counts_as_hardware
from .._logging import logger
from .._options.executor_options import uses_pipeline
from .._scopes.executed_operators import is_convolution, label_operator, list_executed_operators
from .._scopes.execution_strategies import ParallelPhasedExecution
from .._scopes.graph_scopes import GraphScopes
from ..enums import OutputMode, OverlapMode
from ..errors import native_error
from ..options import Options
from .capture_errors import CaptureRefusal

__all__ = ["check_operators", "check_overlap", "check_pipeline", "refuse_written_buffers"]

_MAX_IPUS = 64
_MIN_IO_TILES = 32


def check_overlap(graph: StepGraph, options: Options) -> None:
    """Refuse `set_overlap_for_input` and `set_overlap_for_output` where the device does not take them."""
    marks = [node for node in graph.graph.nodes if _requests_overlap(node)]
    # PopTorch looks at the graph before the options, so a program with several faults gets the same message first
    for mark in marks:
        if label_operator(mark) == "set_overlap_for_input":
            _check_overlapped_input(mark)
    _check_overlapped_outputs([mark for mark in marks if label_operator(mark) == "set_overlap_for_output"])
    if not marks:
        return
    if uses_pipeline(options):
        raise native_error(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please "
            "switch to poptorch.ShardedExecution."
        )
    if options.TensorLocations.toDict().get("numIOTiles", 0) < _MIN_IO_TILES:
        raise native_error(
            f"No IO tiles allocated. You must allocate at least {_MIN_IO_TILES} IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
    if options.output_mode not in (OutputMode.All, OutputMode.Sum):
        raise native_error(
            "Unsupported output mode for overlapped IO. Please switch output mode to poptorch.OutputMode.All or "
            "poptorch.OutputMode.Sum."
        )


def _requests_overlap(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or not label_operator(node).startswith("set_overlap_for_"):
        return False
    mode = node.args[1] if len(node.args) > 1 else node.kwargs.get("mode")
    return mode != OverlapMode.NoOverlap.value


def _check_overlapped_input(mark: torch.fx.Node) -> None:
    source = mark.all_input_nodes[0]
    inputs = [node for node in mark.graph.nodes if node.op == "placeholder" and node.meta.get("kind") == "input"]
    if source not in inputs:
        raise native_error("poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model.")
    if len(source.users) > 1:
        # by its number: PopTorch's compiled part knows no names of inputs
        raise native_error(
            "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for input "
            f"{inputs.index(source)} to the model."
        )


def _check_overlapped_outputs(marks: Sequence[torch.fx.Node]) -> None:
    returned = output_nodes(marks[0].graph) if marks else []
    for mark in marks:
        # the tensor under the mark counts as well: PopTorch takes the mark off
        tensor = mark.all_input_nodes[0]
        same = [node for node in returned if node is tensor or node in marks and node.all_input_nodes[0] is tensor]
        if len(same) > 1:
            raise native_error(
                "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check all "
                "returned tensors including those nested in tuples/lists."
            )
    if not set(marks) <= set(returned):
        raise native_error(
            "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."
        )


def check_pipeline(graph: StepGraph, scopes: GraphScopes, options: Options) -> int:
    """Return how many IPUs the model needs.

    Raises `poptorch.Error` for the first fault of blocks, `MultiConv`s and IPUs that a device would refuse. Whether so
    many IPUs are free is checked when a device is taken.
    """
    operators = list_executed_operators(graph.graph, with_bodies=True)
    if scopes.has_nested_multi_conv:
        raise native_error("Nested poptorch.MultiConv is not supported.")
    filled = {
        node.meta["multi_conv"]["number"] for node in operators if "multi_conv" in node.meta and is_convolution(node)
    }
    if any(multi_conv["number"] not in filled for multi_conv in scopes.multi_convs):
        raise native_error("Unexpected end_multi_conv, is the IR malformed?")
    for node in operators:
        # None means that blocks are in use and this operator is outside; a model without blocks has no entry
        if node.meta.get("block", "") is None:
            place = node.meta.get("place")
            where = f" ({node.target} at {place})" if place else ""
            raise native_error(f"No active Block, all the ops must belong to a Block{where}")
    # The compiler's own operators have no IPU: they follow those around them.
    placed = [node for node in operators if node.meta.get("ipu") is not None]
    if isinstance(options._execution_strategy, ParallelPhasedExecution):
        if any(node.meta["phase"] % 2 != node.meta["ipu"] % 2 for node in placed):
            raise native_error(
                "When phases are executed in parallel: even phases must run on even IPUs and odd phases on odd IPUs"
            )
    ipus = [node.meta["ipu"] for node in placed]
    # a replica has all up to the one with the largest number
    num_ipus: int = (1 + max(ipus, default=0)) * options.replication_factor
    if num_ipus > _MAX_IPUS:
        raise native_error(
            f"Too many IPUs requested ({num_ipus}). Experiments that need more than {_MAX_IPUS} IPUs require "
            "distributed execution."
        )
    fault = _find_pipeline_fault(ipus, options, is_training=graph.mode == "training") if uses_pipeline(options) else ""
    # without hardware any number is possible, but a program that is refused gets the device's first fault
    if fault or counts_as_hardware(options):
        count_reserved_ipus(num_ipus, may_round=options.auto_round_num_ipus)
    if fault:
        raise native_error(fault)
    return num_ipus


def _find_pipeline_fault(ipus: List[int], options: Options, *, is_training: bool) -> str:
    """Return why a call cannot fill the pipeline, or ""; `ipus` are those of the forward pass's operators in order."""
    # A pipeline begins on IPU 0, where the inputs arrive, also if the first block is on another one. Operators that
    # follow each other on one IPU are one stage.
    num_stages = 1 + sum(before != after for before, after in zip([0, *ipus], ipus))
    if num_stages == 1:
        return ""
    if not is_training and options.device_iterations < num_stages:
        return (
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({num_stages}) when using poptorch.PipelinedExecution."
        )
    # the way back passes all stages but the last once more
    num_training_stages = 2 * num_stages - 1
    if is_training and options.Training.gradient_accumulation < num_training_stages:
        return (
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
            f"stages ({num_training_stages}) when using poptorch.PipelinedExecution. Please note that a model with "
            f"{num_stages} pipeline stages in PopTorch will have an additional {num_stages - 1} stages when training."
        )
    return ""


def refuse_written_buffers(graph: StepGraph, options: Options) -> None:
    """Raise `poptorch.Error` if `forward` itself writes into a buffer that replicas are to share.

    Like PopTorch this goes by the operators' schemas. The schema of batch norm does not declare its write: each replica
    updates running statistics of its own, and the host gets the first one's.
    """
    replicated = options.replication_factor > options.input_group_size
    if not replicated or not options.broadcast_buffers or not graph.mutated_buffers:
        return
    changed: List[torch.fx.Node] = []
    for node in graph.graph.nodes:
        if isinstance(node.target, OpOverload):
            arguments = declared_written_arguments(node.target, node.args, node.kwargs)
            changed += [argument for argument in arguments if isinstance(argument, torch.fx.Node)]
    # by memory: `forward` may write through a view of the buffer
    memory = tensor_memories(changed)
    named = zip(graph.buffers, graph.placeholders[len(graph.parameters) :])
    written = sorted(
        info.name for info, node in named if info.name in graph.mutated_buffers and tensor_memories([node]) & memory
    )
    if written:
        raise native_error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using poptorch.Options.broadcastBuffers(False)."
            f" (modified: {join_names(written, most=3, quote='')})"  # each of a deep network's layers may have some
        )


_IN_PORTS = "or leave it as it is: `porting.to_ipu(model)` computes it by operators that the device has"
_SUPPORT = (
    "Not all operations are supported yet by Graphcore's PyTorch compiler. If you believe any of these should be, "
    "please report this message to support@graphcore.ai."
)


def check_operators(graph: StepGraph, model: nn.Module) -> None:
    """Refuse operators that the device lacks, at all or in this form; warn of label smoothing, which it drops."""
    attention = collect_attention(model)
    # the mark of models that `to_ipu` wraps, for which there is nothing more to exchange
    is_port = getattr(model, "_porting_allowed", None) is not None
    forms: List[RefusedCall] = []
    missing: Dict[str, RefusedCall] = {}
    for call in iter_calls(graph):
        refused = find_refused_call(call, attention=attention)
        if refused is not None and refused.message:
            forms.append(refused)
        elif refused is not None:
            missing.setdefault(refused.name, refused)
        if call.arguments.get("label_smoothing"):
            # PopTorch compiles the loss without it, silently: do the same, with a warning
            node = call.node
            node.args, node.kwargs = change_arguments(
                node.target, node.args, node.kwargs, ["label_smoothing"], lambda _smoothing: 0.0
            )
            where = node.meta.get("place") or "forward"
            logger.warning("The device ignores the label_smoothing of aten::cross_entropy_loss (%s)", where)
    if forms:
        _refuse_forms(forms, list(missing.values()), is_port=is_port)
    if missing:
        _refuse_missing(missing, is_port=is_port)


def _refuse_forms(forms: Sequence[RefusedCall], missing: Sequence[RefusedCall], *, is_port: bool) -> NoReturn:
    """Refuse the first call as PopTorch does, which stops there, and name all others."""
    first = forms[0]
    others = [f"`aten::{call.name}` is refused at {call.node.meta.get('place')}: {call.message}" for call in forms[1:]]
    others += [f"`aten::{call.name}` is called at {call.node.meta.get('place')}: there is none" for call in missing]
    raise _make_refusal(
        first.message,
        [first.node],
        fault=f"the device does not have `aten::{first.name}` in this form",
        label="the device refuses this call",
        notes=tuple(dict.fromkeys(others)),
        help=(first.remedy, *([_IN_PORTS] if first.in_ports and not is_port else [])),
    )


def _refuse_missing(missing: Mapping[str, RefusedCall], *, is_port: bool) -> NoReturn:
    names = [f"aten::{name}" for name in missing]
    called = [(name, call.node.meta.get("place")) for name, call in missing.items()]
    places = [f"`aten::{name}` is called at {place}" for name, place in called if place]
    help = list(dict.fromkeys(call.remedy for call in missing.values()))
    if all(call.in_ports for call in missing.values()) and not is_port:
        help.append(_IN_PORTS)
    raise _make_refusal(
        f"Unsupported ops found in compiled model: [{', '.join(names)}]. {_SUPPORT}",
        [call.node for call in missing.values()],
        fault=f"the device has no {join_names(names)}",
        label="the device cannot compute this",
        notes=(*places[1:], "that a report is asked for above is PopTorch's text: there is nothing to report"),
        help=tuple(help),
    )


def _make_refusal(
    message: str, nodes: Sequence[torch.fx.Node], *, fault: str, notes: Sequence[str] = (), **rest: Any
) -> CaptureRefusal:
    paths = filter(None, dict.fromkeys(node.meta.get("module_path", "") for node in nodes))
    notes = (*(f"the module is `{path}`" for path in paths), *notes)
    return CaptureRefusal(
        message, Finding("C017", message=fault, place=nodes[0].meta.get("place"), notes=notes, **rest)
    )
