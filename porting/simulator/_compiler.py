"""From a model and the arguments of its first call to an executable: split, trace, check, build."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict

import torch
from torch import nn

from ..capture import StepGraph, TensorInfo, capture_step
from ..capture.dtypes import NARROWED
from ..diagnostics import CaptureError, Finding
from ..engines import load_engine
from ..engines.call_plan import CallPlan
from ..engines.device_state import DeviceState
from ._args_parser import BoundArguments
from ._capture_errors import TYPE_NAMES, vendor_error
from ._logging import cpp_log, logger, set_max_repeat_logs
from ._options_validation import validate_options
from ._tracing_state import tracing
from ._unsimulated import refuse_unsimulated
from .enums import OutputMode, ReductionType
from .errors import createPoptorchError, native_error
from .options import Options

__all__ = ["CompiledModel", "compile_model", "micro_batches_per_call"]

_MAX_IPUS = 64
_one_at_a_time = threading.RLock()
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


def compile_model(model: nn.Module, bound: BoundArguments, options: Options, *, training: bool) -> CompiledModel:
    """Trace `model` on its first micro-batch and build the executable; one model at a time, whatever the thread.

    Raises `poptorch.Error` for everything that a device would refuse; exceptions of `forward` come through as they are.
    """
    bar = options._progress_bar
    report = bar if options._show_compilation_progress_bar else _report_nothing
    with _one_at_a_time:
        try:
            return _compile(model, bound, options, training=training, report=report)
        finally:
            bar.close()


def _report_nothing(_progress: int, _total: int) -> None:
    pass


def _compile(
    model: nn.Module, bound: BoundArguments, options: Options, *, training: bool, report: Callable[[int, int], None]
) -> CompiledModel:
    if not isinstance(model, nn.Module):
        raise createPoptorchError(f"Only a torch.nn.Module can be compiled, got {type(model)}")
    set_max_repeat_logs(options.max_repeat_logs)
    validate_options(options.toDict())
    refuse_unsimulated(options, training=training)
    _check_num_ipus(options)
    _check_named_buffers(model, options)
    plan = _plan(options, training=training)
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
    executable = load_engine(options._engine)(graph)
    state = DeviceState.for_graph(graph, replicas=options.replication_factor)
    report(100, 100)
    _log_findings(graph)
    return CompiledModel(graph, executable, state, plan)


def _check_num_ipus(options: Options) -> None:
    if options.replication_factor > _MAX_IPUS:
        raise native_error(
            f"Too many IPUs requested ({options.replication_factor}). Experiments that need more than {_MAX_IPUS} IPUs "
            "require distributed execution."
        )


def _check_named_buffers(model: nn.Module, options: Options) -> None:
    known = {name for name, _buffer in model.named_buffers()}
    unknown = [name for name in options._Popart.options.get("updatableNamedBuffers") or () if name not in known]
    if unknown:
        raise native_error(f"The model has no buffers called {', '.join(unknown)} (updatableNamedBuffers)")


def _micro_batch(bound: BoundArguments, parts: int, options: Options) -> BoundArguments:
    return bound.with_tensors([_first_rows(tensor, parts, options) for tensor in bound.tensors()])


def _first_rows(tensor: torch.Tensor, parts: int, options: Options) -> torch.Tensor:
    """Return the first micro-batch of an input in the form in which the device gets it."""
    if tensor.device.type != "cpu":
        raise createPoptorchError(f"Inputs must be on the CPU, got a tensor on {tensor.device}")
    if tensor.numel() == 0:
        raise native_error(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})")
    rows = tensor.shape[0] if tensor.dim() else 1
    if rows % parts:
        raise AssertionError(_batch_message(tensor, parts, options))
    if tensor.requires_grad:
        logger.warning(
            "Input tensor has requires_grad=True set. This tensor will be detached because backward pass via inputs is "
            "not supported."
        )
        tensor = tensor.detach()
    if parts > 1:
        tensor = tensor.narrow(0, 0, rows // parts)
    return tensor.contiguous() if tensor.layout == torch.strided else tensor


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
    _log_narrowing(graph)
    if graph.mode == "training":
        cpp_log("debug", f"Found {graph.num_losses} losses and removed {graph.num_losses - 1}")


def _log_narrowing(graph: StepGraph) -> None:
    """Say once for each type that tensors of this model are narrower on the device, with the first one's name."""
    first: Dict[torch.dtype, TensorInfo] = {}
    for info in (*graph.inputs, *graph.parameters, *graph.buffers):
        if info.host_dtype in NARROWED:
            first.setdefault(info.host_dtype, info)
    for dtype, info in first.items():
        words = [TYPE_NAMES[str(kind).replace("torch.", "")] for kind in (dtype, info.dtype)]
        cpp_log("warning", f"[DISPATCHER] Tensor ({info.name}) type coerced from {words[0]} to {words[1]}")


def _plan(options: Options, *, training: bool) -> CallPlan:
    plan = CallPlan(
        iterations=options.device_iterations,
        accumulation=options.Training.gradient_accumulation if training else 1,
        replicas=options.replication_factor,
        mean_reduction=options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean,
        output_mode=_OUTPUT_MODES[OutputMode(options.output_mode)],
        output_period=options.output_return_period,
    )
    batches = plan.iterations * plan.accumulation
    if plan.output_mode == "every_n" and batches % plan.output_period:
        raise native_error(
            f"The output return period ({plan.output_period}) must be a factor of the number of batches that a replica "
            f"processes in a call ({batches}).",
            kind="popart_exception",
        )
    return plan
