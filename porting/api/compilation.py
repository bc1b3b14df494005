"""Make and compile an executor of a port, and check that its step runs where it should and fits into an IPU.

Runners use it.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import importlib.util
import os
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Set

import torch

from ..adapters.backend_protocol import Executor
from ..adapters.cumulative_counts import let_device_count
from ..adapters.stages import check_order, mark_stages, require_filled_pipeline
from ..analysis.wide_state import refuse_wide_state
from ..diagnostics import OptionError, PortingError, caller_place, find_assignment, join_names
from ..host_tensors import host_tensors
from ..module_attributes import keep_attributes, keep_train_modes, materialise_lazy_modules, switch_to_eval
from ..options import PortOptions
from ..support.poptorch_releases import loses_freezing
from ..torch_insides.modes import DisableTorchFunction, disable_current_modes
from .gradients import anchor_gradients
from .optimizer import PortOptimizer
from .port import Port, PortFindings, list_modules_with_modes

__all__ = [
    "check_memory",
    "collect_cache_files",
    "compilation",
    "compile_checked",
    "destroy_left",
    "destroy_unseen",
    "make_executor",
    "unwrap_model",
]


def make_executor(
    port: Port,
    findings: PortFindings,
    optimizer: Optional[PortOptimizer],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Make the backend's executor, for which `args` and `kwargs` are the first batch; it trains with an `optimizer`.

    Executors for inference share the model's weights.
    """
    with switch_to_eval(list_modules_with_modes(port)):
        materialise_lazy_modules(port.wrapped, args, kwargs)
    if optimizer is None:
        options = _make_reporting_options(port.inference_options, findings)
        return port.backend.module.inferenceModel(port.wrapped.for_inference(), options)
    if not any(parameter.requires_grad for parameter in port.wrapped.parameters()):
        raise PortingError.at_caller(
            "L003",
            message="no parameter of the model is trainable",
            help="call `requires_grad_(True)` on what should train, or use `ported.inference()`",
        )
    require_filled_pipeline(port.options)
    let_device_count(port.model)
    on_device = optimizer.match_before_compilation()
    options = _make_reporting_options(port.training_options, findings)
    if port.options.keep_gradients:
        anchor_gradients(port, options, on_device, args, kwargs)
    return port.backend.module.trainingModel(port.wrapped, options, optimizer=on_device)


def _make_reporting_options(options: Any, findings: PortFindings) -> Any:
    """Return a copy of the backend's options; a backend with findings of its own hands them over by it."""
    options = options.clone()
    if hasattr(options, "reportTo"):
        # a function, which is not copied with the options as a method and its object are
        options.reportTo(lambda finding: findings.defer(finding))
    return options


def _refuse_lost_freezing(port: Port, executor: Executor) -> None:
    """Raise PortingError D021 for a frozen parameter that the vendor's PopTorch would train.

    A port asks for no value of a parameter for each group of replicas; one can be asked for of its executor.
    """
    grouped = getattr(executor, "per_replica_params", None) or {}
    named = port.wrapped.named_parameters()
    frozen = [name for name, parameter in named if name in grouped and not parameter.requires_grad]
    version = str(getattr(port.backend.module, "__version__", ""))
    if frozen and loses_freezing(version):
        raise PortingError.at_caller(
            "D021",
            message=f"PopTorch {version} would train {join_names(frozen)}",
            notes="`requires_grad` is False, and each group of replicas has a value of its own",
            help=("use the SDK 3.4", "or keep it as a buffer: `register_buffer`"),
        )


@contextmanager
def compilation(port: Port, findings: PortFindings, *, keeps_modes: bool) -> Iterator[Sequence[str]]:
    """Surround a compilation; the value names the stages that the trace has begun, in their order.

    The modules are in eval mode unless it `keeps_modes`.
    """
    modes = keep_train_modes if keeps_modes else switch_to_eval
    # a device's tensors stay out of the modules' attributes; the simulator sees to that where it captures
    attributes: ContextManager[None] = nullcontext()
    if not port.backend.is_simulator:
        attributes = keep_attributes(
            port.model,
            is_device_tensor=lambda tensor: tensor.device.type == "ipu",
            place_of=lambda module, name, _tensor: find_assignment(type(module), name),
            report=findings.defer,
        )
    with torch.inference_mode(False), modes(list_modules_with_modes(port)), attributes:
        with mark_stages(port.model, port.options, backend=port.backend.module) as begun:
            yield begun
    for finding in port.wrapped.take_findings():
        findings.defer(finding)


def collect_cache_files(options: PortOptions) -> Set[str]:
    """Collect what is in the folder of executables, from which one tells what the vendor's compiler did."""
    folder = options.cache_dir
    return set(os.listdir(folder)) if folder is not None and os.path.isdir(folder) else set()


# -- where the step runs -----------------------------------------------------------------------------------------------


def compile_checked(
    port: Port, executor: Executor, args: Sequence[Any], kwargs: Mapping[str, Any], *, begun: Sequence[str]
) -> None:
    """Compile a step for a batch; PortingError where it cannot run as it should.

    `begun` gets the stages that the trace begins. D021 is about what the vendor's PopTorch would train, P009 and P010
    are about those stages, C043 about a parameter or buffer with a value that 32 bits cannot hold; the last is the
    simulator's, whose step can be looked at.
    """
    _refuse_lost_freezing(port, executor)
    executor.compile(*args, **kwargs)
    _check_placement(port, executor, begun)
    step = port.backend.compiled_step(executor)
    if step is not None:
        graph = step.graph
        read = {info.name for info, node in zip(graph.entering, graph.placeholders) if node.users}
        refuse_wide_state([host for host in host_tensors(port.wrapped) if host.name in read])


def _check_placement(port: Port, executor: Executor, begun: Sequence[str]) -> None:
    """Raise OptionError if the stages that a trace has begun are not those of the options, or cannot be placed so.

    P009 for their order and for an IPU without an operator, P010 for a parameter that operators on two IPUs use; the
    vendor's compiler says the last two by itself.
    """
    if not port.options.stages:
        return
    check_order(port.options, begun)
    step = port.backend.compiled_step(executor)
    if step is not None:
        operators = [node for node in step.graph.graph.nodes if node.op == "call_function"]
        idle = sorted(set(range(port.options.num_ipus)) - {node.meta.get("ipu") for node in operators})
        if idle:
            raise OptionError.at_caller(
                "P009",
                message=f"no operator runs on IPU {idle[0]}",
                notes="a module that contains another stage's module begins just before it, and has nothing to do "
                "itself",
                help="what comes before the first stage is on IPU 0: name the module with which IPU 1 begins",
            )
        names = {node: info.name for info, node in zip(step.graph.parameters, step.graph.placeholders)}
        _check_weights([node for node in operators if node.meta.get("ipu") is not None], names)


def _check_weights(operators: Sequence[Any], names: Mapping[Any, str]) -> None:
    ipus: Dict[str, int] = {}
    for node in operators:
        ipu = node.meta["ipu"]
        for name in [names[used] for used in node.all_input_nodes if used in names]:
            first = ipus.setdefault(name, ipu)
            if first != ipu:
                module = node.meta.get("module_path") or "forward"
                raise OptionError.of(
                    "P010",
                    message=f"the parameter `{name}` is used on IPU {min(first, ipu)} and {max(first, ipu)}",
                    place=node.meta.get("place") or caller_place(),
                    notes=f"`{module}` uses it on IPU {ipu}, and a weight lies on one IPU",
                    help="begin a stage on the weight's IPU where it is used again, as in `stages={..., 'head': 0}`",
                )


# -- whether it fits ---------------------------------------------------------------------------------------------------


def check_memory(port: Port, findings: PortFindings, optimizer: Optional[PortOptimizer], executor: Executor) -> None:
    """Warn (M001) of a step that the simulator has compiled and that would not fit into an IPU.

    With `PortOptions(memory="error")` it is an error, of PopTorch's class and with its words; with "ignore" nothing is
    looked at. A step for inference has no `optimizer`.
    """
    step = port.backend.compiled_step(executor)
    if step is None or port.options.memory == "ignore":
        return
    # on a machine with IPUs there is no capture, nor the torch that it wants
    look = importlib.import_module("porting.planning.memory_look")
    planned = look.find_unfit_plan(step.graph, port.options, None if optimizer is None else optimizer.device)
    if planned is None:
        return
    mode = ', mode="inference"' if optimizer is None else ""
    finding = dataclasses.replace(
        planned.finding,
        place=caller_place(),
        label="the step is compiled here",
        help=(
            *planned.finding.help[:1],
            f"see all that would help: `print(porting.memory_report(ported, batch{mode}))`",
            'if no IPU is meant to run it: `PortOptions(memory="ignore")`',
        ),
    )
    if port.options.memory == "error":
        raise look.make_memory_error(planned, finding)
    findings.say(finding)


def unwrap_model(port: Port) -> None:
    """Give the model and its tensors the classes back that they had before a training executor took them over.

    A backend without the vendor's private module does not take them over.
    """
    name = f"{port.backend.module.__name__}._impl"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name).unwrapModelIfNecessary(port.wrapped)


# -- the end -----------------------------------------------------------------------------------------------------------


class _Endings:
    """Ends executors that nobody keeps; those that a garbage collection finds, after it.

    A collection happens at any moment: in the middle of another model's capture, or while torch goes through one of
    its tables, which operators change. Nothing is lost by waiting: a look at the weights fetches them as before.
    """

    def __init__(self) -> None:
        self._is_collecting = False
        self._left: List[Callable[[], None]] = []
        gc.callbacks.append(self._note_collection)

    def _note_collection(self, phase: str, _counts: Mapping[str, int]) -> None:
        self._is_collecting = phase == "start"

    def destroy_unseen(self, destroy: Callable[..., None], *args: Any) -> None:
        """End the executors of a ported model that nobody keeps, by `destroy`; in a collection, soon after it."""
        if self._is_collecting:
            self._left.append(functools.partial(destroy, *args))
            return
        with disable_current_modes(), DisableTorchFunction():
            destroy(*args)

    def destroy_left(self) -> None:
        """End the executors that were found by collections since the last time."""
        while self._left:
            self.destroy_unseen(self._left.pop())


_ENDINGS = _Endings()
destroy_unseen, destroy_left = _ENDINGS.destroy_unseen, _ENDINGS.destroy_left
