"""Compile a model for the arguments of its first call: split them, trace, check, build, and write files.

The device session calls `compile_model`.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Callable, List, Mapping, Optional

import torch
from torch import nn

from ...capture import StepGraph, capture_step
from ...capture.following import FirstRun
from ...diagnostics import CaptureError, Finding
from ...engines.calls.call_plan import CallPlan, ReplicaGroups
from ...engines.calls.device_state import DeviceState
from ...engines.recompute.recomputation import order_computation
from ...engines.recompute.values_for_backward import keep_values_for_backward
from ...engines.replay.strided_group_norm import stride_group_norms
from ...executables.obtain import Obtained
from ...options import ComputationOrder
from ...support.atomic_files import write_atomically
from .. import trouble
from .._args_parser import BoundArguments, contains_dict, without_memory
from .._device.device_target import check_target
from .._executables.executable_cache import keep_executable, lock_compilation
from .._graph.anchors import Anchors, find_anchors
from .._graph.graph_files import export_graph, trace_graph
from .._logging import cpp_log, logger, set_max_repeat_logs
from .._options.simulator_options import read_extras
from .._options.validation import validate_options
from .._scopes.graph_scopes import GraphScopes, trace_in_scopes
from .._weights.replica_parameters import collect_replica_groups, put_one_group_in_place
from ..errors import createPoptorchError, native_error
from ..options import Options
from .capture_errors import log_coercions, make_vendor_error, name_other_faults
from .executables import HostSide, make_call_plan, make_executable, open_exchange, place_mean
from .graph_checks import check_operators, check_overlap, check_pipeline, refuse_written_buffers

__all__ = ["CompiledModel", "announce_compilation", "compile_model"]

_one_at_a_time = threading.RLock()

# What may differ between two compilations with the same result.
_NO_PART_OF_EXECUTABLES = frozenset(
    "compilation_progress_bar_fn cachePath enableEngineCaching log_dir max_repeat_logs random_seed connection_type "
    "engineOptions ipu_id model_name distributed_process_id globalReplicaOffset".split()
)


@dataclass
class CompiledModel:
    """The result of a compilation: the graph, the executable, the device's tensors and the plan of a call.

    `capture_again` captures the same step once more, which takes about `capture_seconds`; it holds no batch.
    `first_run` is the captured run of `forward`, until it has been followed.
    """

    graph: StepGraph
    obtained: Obtained
    state: DeviceState
    plan: CallPlan
    num_ipus: int = 1
    anchors: Optional[Anchors] = None
    capture_again: Optional[Callable[[], StepGraph]] = None
    capture_seconds: float = 0.0
    first_run: Optional[FirstRun] = None


def announce_compilation(bound: BoundArguments, options: Options) -> None:
    """Check the target, and warn of arguments that it supports in part; `poptorch.Error` for a bad target."""
    check_target(options)
    if contains_dict([bound.positional, *bound.named.values()]):
        logger.warning(
            "Dicts as inputs only have partial support, they can be accessed using literal keys, but full Python "
            "functionality is not enabled. Consider changing dict inputs to tuple."
        )


def compile_model(
    model: nn.Module,
    bound: BoundArguments,
    options: Options,
    host: HostSide,
    check_graph: Callable[[StepGraph], None],
    *,
    waits: bool,
) -> CompiledModel:
    """Trace `model` and build its executable, one process after the other, and write the files that the options name.

    Unless it `waits`, no engine is measured. `check_graph` may refuse the traced graph. Raises `poptorch.Error` for
    everything that a device would refuse; exceptions of `forward` are passed on unchanged.
    """
    # A tensor made in inference mode could not be written to by a later call outside of it.
    with torch.inference_mode(False), lock_compilation(model, options):
        compiled = _trace_and_build(model, bound, options, host, waits=waits)
        trace_graph(compiled.graph)
        # before anything is written about a graph that is refused
        check_graph(compiled.graph)
        export_graph(compiled.graph)
        # what an executable depends on besides the graph
        settings = {key: value for key, value in options.toDict().items() if key not in _NO_PART_OF_EXECUTABLES}
        keep_executable(compiled.graph, options, settings={**settings, "optimizer": str(host.optimizer_type)})
    _write_profile(options, training=host.is_training)
    return compiled


def _trace_and_build(
    model: nn.Module, bound: BoundArguments, options: Options, host: HostSide, *, waits: bool
) -> CompiledModel:
    """Trace `model` on its first micro-batch and build the executable; one model at a time, whatever the thread."""
    extras = read_extras(options)
    bar = extras.progress_bar
    report = bar if options._show_compilation_progress_bar else (lambda _progress, _total: None)
    # Tracing replaces functions of torch for the whole process: two threads would see each other's.
    with _one_at_a_time, closing(bar):
        set_max_repeat_logs(options.max_repeat_logs)
        _check_settings(model, options)
        groups = collect_replica_groups(model, host.per_replica, options.replication_factor)
        exchange = open_exchange(options, grouped=groups) if host.is_training else None
        plan = make_call_plan(options, training=host.is_training, exchange=exchange)
        report(0, 100)
        # A step is traced on one micro-batch: the plan of a call repeats it for the others.
        micro = bound.replace_tensors(
            [_take_first_rows(tensor, plan.num_slices, options) for tensor in bound.list_tensors()]
        )
        capture = partial(_capture_step, model, options, training=host.is_training, groups=groups)
        scopes = GraphScopes(source_excludes=options._source_location_excludes)
        # a compilation without a port makes no second run
        first_run = None if getattr(model, "_porting_allowed", None) is None else FirstRun()
        started = perf_counter()
        try:
            graph = capture(micro, scopes, listener=extras.report, first_run=first_run)
        except CaptureError as error:
            raise make_vendor_error(
                name_other_faults(error, partial(capture, micro, GraphScopes(), keeps_facts=False), model)
            ) from None
        capture_seconds = perf_counter() - started
        report(60, 100)
        num_ipus = _check_graph(graph, model, scopes, options)
        plan = place_mean(graph, plan, options)
        anchors = find_anchors(graph, options, plan, host.optimizer_names) if options.anchored_tensors else None
        # The graph that runs may differ from the one that is shown and saved: anchors are further outputs of it, and
        # the computation order may repeat operators.
        replayed = keep_values_for_backward(graph if anchors is None else anchors.graph)
        replayed = order_computation(replayed, ComputationOrder.of(extras.computation_order))
        obtained, state = make_executable(
            replayed,
            plan,
            options,
            host,
            inputs=bound.list_tensors(),
            groups=groups,
            observer=None if anchors is None else anchors.observer,
            model=getattr(model, "_porting_model_name", type(model).__name__),
            waits=waits,
        )
        if exchange is not None:
            exchange.watch(state.parameters)
        report(100, 100)
        if graph.host_outputs:
            warnings.warn("Output expected to be on the IPU but is on cpu", stacklevel=2)
        if graph.mode == "training":
            cpp_log("debug", f"Found {graph.num_losses} losses and removed {graph.num_losses - 1}")
        if extras.listener is None:
            # a listener hears of these as findings
            _log_what_differs(graph, model, bound)
        # without its memory: a later capture needs only shapes, and the batch may be large
        outline = micro.replace_tensors([without_memory(tensor) for tensor in micro.list_tensors()])
        return CompiledModel(
            graph,
            obtained,
            state,
            plan,
            num_ipus,
            anchors,
            # a second capture compares operators and values: their placement is known
            capture_again=lambda: capture(outline, GraphScopes(), keeps_facts=False),
            capture_seconds=capture_seconds,
            first_run=first_run,
        )


def _log_what_differs(graph: StepGraph, model: nn.Module, bound: BoundArguments) -> None:
    """Log a step that trains nothing, and the tensors that have other types on the device."""
    is_trained = any(info.requires_grad for info in graph.parameters)
    if graph.has_loss and is_trained and not graph.loss_has_gradient:
        logger.warning("The loss does not depend on any trainable parameter: no parameter will be updated")
    log_coercions(graph, model, bound.list_tensors())


def _check_settings(model: nn.Module, options: Options) -> None:
    if not isinstance(model, nn.Module):
        raise createPoptorchError(f"Only a torch.nn.Module can be compiled, got {type(model)}")
    validate_options(options.toDict())
    known = {name for name, _buffer in model.named_buffers()}
    unknown = [name for name in options._Popart.options.get("updatableNamedBuffers") or () if name not in known]
    if unknown:
        raise native_error(f"The model has no buffers called {', '.join(unknown)} (updatableNamedBuffers)")


def _take_first_rows(tensor: torch.Tensor, num_slices: int, options: Options) -> torch.Tensor:
    """Return the first micro-batch of an input in the form in which the device gets it."""
    if tensor.device.type != "cpu":
        raise createPoptorchError(f"Inputs must be on the CPU, got a tensor on {tensor.device}")
    if tensor.numel() == 0:
        raise native_error(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})")
    # a scalar counts as one row: it cannot be cut
    rows = tensor.shape[0] if tensor.dim() else 1
    if rows % num_slices:
        raise AssertionError(
            f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension ({rows}) must be a multiple of "
            f"Options.deviceIterations({options.device_iterations}) * "
            f"(Options.replicationFactor({options.replication_factor}) / "
            f"Options.inputReplicaGrouping.input_group_size({options.input_group_size})) * "
            f"Options.Training.gradientAccumulation({options.Training.gradient_accumulation}) = {num_slices} because "
            "it is used to calculate the batch size which will be executed on the device in any given iteration. For "
            "a full explanation see the batching semantics page of the documentation."
        )
    if tensor.requires_grad:
        logger.warning(
            "Input tensor has requires_grad=True set. This tensor will be detached because backward pass via inputs is "
            "not supported."
        )
        tensor = tensor.detach()
    if num_slices > 1:
        tensor = tensor.narrow(0, 0, rows // num_slices)
    # sparse tensors have no memory layout to change; the capture refuses them with its own message
    return tensor.contiguous() if tensor.layout == torch.strided else tensor


def _capture_step(
    model: nn.Module,
    options: Options,
    micro: BoundArguments,
    scopes: GraphScopes,
    *,
    training: bool,
    groups: Mapping[str, ReplicaGroups],
    listener: Optional[Callable[[Finding], None]] = None,
    keeps_facts: bool = True,
    first_run: Optional[FirstRun] = None,
    failures: Optional[List[Exception]] = None,
) -> StepGraph:
    # the mark of models that `to_ipu` wraps: they get what plain PopTorch leaves out silently
    allowed = getattr(model, "_porting_allowed", None)
    with put_one_group_in_place(model, groups):
        return capture_step(
            model,
            micro.positional,
            micro.named,
            mode="training" if training else "inference",
            prints="unavailable",
            host_features="ignored" if allowed is None else "computed",
            allowed=allowed or (),
            around_forward=lambda: trace_in_scopes(
                scopes, model, options._execution_strategy, names_modules=options._module_namescope_enabled
            ),
            node_facts=scopes.read_node_facts if keeps_facts else None,
            listener=listener,
            autocast=read_extras(options).autocast,
            first_run=first_run,
            failures=failures,
        )


def _check_graph(graph: StepGraph, model: nn.Module, scopes: GraphScopes, options: Options) -> int:
    """Refuse what the device does not support, in PopTorch's order; return how many IPUs the model needs."""
    check_operators(graph, model)
    check_overlap(graph, options)
    num_ipus = check_pipeline(graph, scopes, options)
    refuse_written_buffers(graph, options)
    if trouble.injections:
        trouble.strike(trouble.Moment.COMPILE, training=graph.mode == "training")
    if options._Popart.options.get("groupNormStridedChannelGrouping"):
        stride_group_norms(graph.graph)
    return num_ipus


def _write_profile(options: Options, *, training: bool) -> None:
    """Write ``<folder>/<model name>/profile.pop`` if the options or ``POPLAR_ENGINE_OPTIONS`` say so."""
    text = os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}"
    try:
        overriding = json.loads(text)
    except ValueError as error:
        raise native_error(f"POPLAR_ENGINE_OPTIONS is not JSON: {error}") from None
    if not isinstance(overriding, dict):
        raise native_error(f"POPLAR_ENGINE_OPTIONS must be a JSON object, got {text}")
    engine = {**(options._Popart.options.get("engineOptions") or {}), **overriding}
    if str(engine.get("autoReport.all", "false")).lower() != "true":
        return
    name = options.model_name if options.exists("model_name") else ("training" if training else "inference")
    write_atomically(
        Path(engine.get("autoReport.directory", ".")) / name / "profile.pop",
        b"profile of porting.simulator: the model ran on the CPU, there are no measurements of an IPU\n",
    )
