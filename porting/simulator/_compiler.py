"""From a model and the arguments of its first call to an executable: split, trace, check, build."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, List

import torch
from torch import nn

from ..capture import StepGraph, capture_step
from ..capture.dtypes import NARROWED
from ..diagnostics import CaptureError, Finding
from ..engines import load_engine
from ..engines.call_plan import CallPlan
from ..engines.device_state import DeviceState
from ._args_parser import BoundArguments
from ._capture_errors import vendor_error
from ._logging import cpp_log, logger
from ._tracing_state import tracing
from ._unsimulated import refuse_unsimulated
from .enums import OutputMode, ReductionType
from .errors import Error, native_error
from .options import Options

__all__ = ["CompiledModel", "compile_model", "micro_batches_per_call"]

_MAX_IPUS = 64
_OUTPUT_MODES = {
    OutputMode.Final: "final",
    OutputMode.EveryN: "every_n",
    OutputMode.All: "all",
    OutputMode.Sum: "sum",
}


@dataclass
class CompiledModel:
    """What a compilation leaves: the graph, the engine's executable, the device's tensors and the plan of a call."""

    graph: StepGraph
    executable: Any
    state: DeviceState
    plan: CallPlan


def micro_batches_per_call(options: Options, *, training: bool) -> int:
    """Return into how many micro-batches the rows of each input are cut."""
    accumulation = options.Training.gradient_accumulation if training else 1
    return options.device_iterations * (options.replication_factor // options.input_group_size) * accumulation


def compile_model(
    model: nn.Module, bound: BoundArguments, options: Options, *, training: bool, show: Any = None
) -> CompiledModel:
    """Trace `model` on its first micro-batch and build the executable.

    `show(progress, total)` is called as the work goes on. Raises `poptorch.Error` for everything that a device would
    refuse; exceptions of `forward` come through as they are.
    """
    refuse_unsimulated(options, training=training)
    _check_num_ipus(options)
    report = show or (lambda _progress, _total: None)
    report(0, 100)
    micro = _micro_batch(bound, micro_batches_per_call(options, training=training), options)
    try:
        graph = capture_step(
            model,
            micro.positional,
            micro.named,
            mode="training" if training else "inference",
            prints="unavailable",
            around_forward=tracing,
        )
    except CaptureError as error:
        raise vendor_error(error) from None
    report(60, 100)
    _check_graph(graph, options)
    _log_findings(graph)
    executable = load_engine(options._engine)(graph)
    state = DeviceState.for_graph(graph, replicas=options.replication_factor)
    report(100, 100)
    return CompiledModel(graph, executable, state, _plan(options, training=training))


def _check_num_ipus(options: Options) -> None:
    if options.replication_factor > _MAX_IPUS:
        raise native_error(
            f"Too many IPUs requested ({options.replication_factor}). Experiments that need more than {_MAX_IPUS} IPUs "
            "require distributed execution."
        )


def _micro_batch(bound: BoundArguments, parts: int, options: Options) -> BoundArguments:
    tensors: List[torch.Tensor] = []
    for tensor in bound.tensors():
        if tensor.numel() == 0:
            raise native_error(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})")
        rows = tensor.shape[0] if tensor.dim() else 1
        if rows % parts:
            raise AssertionError(_batch_message(tensor, parts, options))
        if tensor.requires_grad:
            logger.warning(
                "Input tensor has requires_grad=True set. This tensor will be detached because backward pass via "
                "inputs is not supported."
            )
        tensor = tensor.detach()
        tensors.append(tensor.narrow(0, 0, rows // parts) if tensor.dim() else tensor)
    return bound.with_tensors(tensors)


def _batch_message(tensor: torch.Tensor, parts: int, options: Options) -> str:
    return (
        f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension "
        f"({tensor.shape[0] if tensor.dim() else 1}) must be a multiple of "
        f"Options.deviceIterations({options.device_iterations}) * "
        f"(Options.replicationFactor({options.replication_factor}) / "
        f"Options.inputReplicaGrouping.input_group_size({options.input_group_size})) * "
        f"Options.Training.gradientAccumulation({options.Training.gradient_accumulation}) = {parts} because it is used "
        "to calculate the batch size which will be executed on the device in any given iteration. For a full "
        "explanation see the batching semantics page of the documentation."
    )


def _check_graph(graph: StepGraph, options: Options) -> None:
    replicated = options.replication_factor > options.input_group_size
    if replicated and options.broadcast_buffers and graph.mutated_buffers:
        raise native_error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using poptorch.Options.broadcastBuffers(False)."
            f" (modified: {', '.join(sorted(graph.mutated_buffers))})"
        )
    trainable = any(info.requires_grad for info in graph.parameters)
    if graph.has_loss and trainable and not graph.loss_has_gradient:
        raise vendor_error(
            CaptureError(
                Finding(
                    "L003",
                    message="the loss does not depend on any trainable parameter",
                    notes=("it was computed under `torch.no_grad()` or from detached tensors",),
                    help="remove the `detach()` or `no_grad()` between the parameters and the loss",
                )
            )
        )


def _log_findings(graph: StepGraph) -> None:
    for finding in graph.findings:
        if finding.code == "C011":
            logger.warning(finding.message)
        else:
            logger.warning("%s (%s)", finding.message, finding.place)
    if graph.host_outputs:
        warnings.warn("Output expected to be on the IPU but is on cpu", stacklevel=2)
    wide = {info.host_dtype for group in (graph.inputs, graph.parameters, graph.buffers) for info in group}
    for dtype in sorted(wide & set(NARROWED), key=str):
        cpp_log("debug", f"[DISPATCHER] Tensors of {dtype} are coerced to {NARROWED[dtype]}")
    if graph.mode == "training":
        cpp_log("debug", f"Found {graph.num_losses} losses and removed {graph.num_losses - 1}")


def _plan(options: Options, *, training: bool) -> CallPlan:
    mode = OutputMode(options.output_mode)
    if mode not in _OUTPUT_MODES:
        raise Error(f"the output mode {mode!r} must be resolved before compiling")
    return CallPlan(
        iterations=options.device_iterations,
        accumulation=options.Training.gradient_accumulation if training else 1,
        replicas=options.replication_factor,
        mean_reduction=options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean,
        output_mode=_OUTPUT_MODES[mode],
        output_period=options.output_return_period,
    )
