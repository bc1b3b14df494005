"""From a model and the arguments of its first call to an executable: split, trace, check, build."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Callable, Mapping, Optional

import torch
from torch import nn

from ...capture import StepGraph, capture_step
from ...diagnostics import CaptureError, Finding
from ...engines.calls.call_plan import CallPlan, ReplicaGroups
from ...engines.calls.device_state import DeviceState
from ...engines.recompute.recomputation import ComputationOrder, order_computation
from ...engines.recompute.values_for_backward import keep_values_for_backward
from ...engines.replay.strided_group_norm import stride_group_norms
from ...executables.obtain import Obtained
from .. import trouble
from .._args_parser import BoundArguments
from .._graph.anchors import Anchors, OptimizerNames, find_anchors
from .._logging import cpp_log, log_as_vendor, logger, set_max_repeat_logs
from .._options.validation import validate_options
from .._scopes.graph_scopes import GraphScopes, scoped_tracing
from .._weights.replica_parameters import PerReplicaParams, one_group_in_place, replica_groups
from ..errors import createPoptorchError, native_error
from ..options import Options
from .call_plans import call_plan, gradient_exchange, with_mean_of
from .capture_errors import vendor_error
from .checks.operators import check_operators
from .checks.overlap import check_overlap
from .checks.pipeline import check_pipeline
from .checks.replicated_buffers import refuse_written_buffers
from .executables import HostSide, make_executable
from .type_coercion import log_coercions

__all__ = ["CompiledModel", "compile_model"]

_one_at_a_time = threading.RLock()


@dataclass
class CompiledModel:
    """What a compilation leaves: the graph, the executable, the device's tensors and the plan of a call.

    `capture_again` captures the same step once more, which takes about `capture_seconds`; it holds no batch.
    """

    graph: StepGraph
    obtained: Obtained
    state: DeviceState
    plan: CallPlan
    ipus_per_replica: int = 1
    anchors: Optional[Anchors] = None
    capture_again: Optional[Callable[[], StepGraph]] = None
    capture_seconds: float = 0.0

    @property
    def num_ipus(self) -> int:
        """How many IPUs the model needs."""
        return self.plan.replicas * self.ipus_per_replica


def compile_model(
    model: nn.Module,
    bound: BoundArguments,
    options: Options,
    *,
    training: bool,
    per_replica: Optional[PerReplicaParams] = None,
    optimizer_names: Callable[[], OptimizerNames] = OptimizerNames,
    host: Optional[HostSide] = None,
) -> CompiledModel:
    """Trace `model` on its first micro-batch and build the executable; one model at a time, whatever the thread.

    `per_replica` are the parameters that differ between groups of replicas; `optimizer_names` says what can be anchored
    of the optimizer, and `host` what the executable is built for and measured with.

    Raises `poptorch.Error` for everything that a device would refuse; exceptions of `forward` come through as they are.
    """
    bar = options._progress_bar
    report = bar if options._show_compilation_progress_bar else _report_nothing
    with _one_at_a_time:
        try:
            return _compile(
                model,
                bound,
                options,
                training=training,
                per_replica=per_replica or {},
                optimizer_names=optimizer_names,
                host=host or HostSide(),
                report=report,
            )
        finally:
            bar.close()


def _report_nothing(_progress: int, _total: int) -> None:
    pass


def _compile(
    model: nn.Module,
    bound: BoundArguments,
    options: Options,
    *,
    training: bool,
    per_replica: PerReplicaParams,
    optimizer_names: Callable[[], OptimizerNames],
    host: HostSide,
    report: Callable[[int, int], None],
) -> CompiledModel:
    if not isinstance(model, nn.Module):
        raise createPoptorchError(f"Only a torch.nn.Module can be compiled, got {type(model)}")
    set_max_repeat_logs(options.max_repeat_logs)
    validate_options(options.toDict())
    _check_named_buffers(model, options)
    groups = replica_groups(model, per_replica, options.replication_factor)
    exchange = gradient_exchange(options, grouped=groups) if training else None
    plan = call_plan(options, training=training, exchange=exchange)
    report(0, 100)
    micro = _micro_batch(bound, plan.num_slices, options)
    capture = partial(_capture, model, options, training=training, groups=groups)
    scopes = GraphScopes(source_excludes=options._source_location_excludes)
    started = perf_counter()
    try:
        graph = capture(micro, scopes, listener=options._listener or log_as_vendor)
    except CaptureError as error:
        raise vendor_error(error) from None
    capture_seconds = perf_counter() - started
    report(60, 100)
    check_operators(graph, model)
    check_overlap(graph, options)
    ipus_per_replica = check_pipeline(graph, scopes, options)
    refuse_written_buffers(graph, options)
    if trouble.injections:
        trouble.strike(trouble.Moment.COMPILE, training=training)
    if options._Popart.options.get("groupNormStridedChannelGrouping"):
        stride_group_norms(graph)
    plan = with_mean_of(graph, plan, options)
    anchors = find_anchors(graph, options, plan, optimizer_names) if options.anchored_tensors else None
    replayed = keep_values_for_backward(graph if anchors is None else anchors.graph)
    replayed = order_computation(replayed, ComputationOrder.of(options._computation_order))
    obtained, state = make_executable(
        replayed,
        plan,
        options,
        host,
        inputs=bound.tensors(),
        groups=groups,
        observer=None if anchors is None else anchors.observer,
        model=getattr(model, "_porting_model_name", type(model).__name__),
    )
    if exchange is not None:
        exchange.watch(state.parameters)
    report(100, 100)
    _log_outputs_and_losses(graph)
    if options._listener is None:
        _warn_of_loss_without_gradient(graph)
        log_coercions(graph, model, bound.tensors())
    outline = micro.with_tensors([_without_memory(tensor) for tensor in micro.tensors()])
    return CompiledModel(
        graph,
        obtained,
        state,
        plan,
        ipus_per_replica,
        anchors,
        capture_again=lambda: capture(outline, GraphScopes(source_excludes=options._source_location_excludes)),
        capture_seconds=capture_seconds,
    )


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _capture(
    model: nn.Module,
    options: Options,
    micro: BoundArguments,
    scopes: GraphScopes,
    *,
    training: bool,
    groups: Mapping[str, ReplicaGroups],
    listener: Optional[Callable[[Finding], None]] = None,
) -> StepGraph:
    allowed = getattr(model, "_porting_allowed", None)
    with one_group_in_place(model, groups):
        return capture_step(
            model,
            micro.positional,
            micro.named,
            mode="training" if training else "inference",
            prints="unavailable",
            host_features="ignored" if allowed is None else "computed",
            allowed=allowed or (),
            around_forward=lambda: scoped_tracing(
                scopes, model, options._execution_strategy, names_modules=options._module_namescope_enabled
            ),
            node_facts=scopes.node_facts,
            listener=listener,
            autocast=options._autocast,
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


def _warn_of_loss_without_gradient(graph: StepGraph) -> None:
    trainable = any(info.requires_grad for info in graph.parameters)
    if graph.has_loss and trainable and not graph.loss_has_gradient:
        logger.warning("The loss does not depend on any trainable parameter: no parameter will be updated")


def _log_outputs_and_losses(graph: StepGraph) -> None:
    if graph.host_outputs:
        warnings.warn("Output expected to be on the IPU but is on cpu", stacklevel=2)
    if graph.mode == "training":
        cpp_log("debug", f"Found {graph.num_losses} losses and removed {graph.num_losses - 1}")
