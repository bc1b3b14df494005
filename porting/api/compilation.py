"""An executor of a port is made and compiled: lazy modules, options, stages, and whether the step fits into an IPU."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import os
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Set

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..adapters.stages import check_order, mark_stages, require_filled_pipeline
from ..diagnostics import OptionError, PortingError, Severity, caller_place, find_assignment
from ..module_attributes import attributes_kept, materialise_lazy_modules
from ..options import PortOptions
from .gradients import anchor_gradients
from .optimizer import PortOptimizer
from .port import Port, PortFindings, eval_modes, kept_modes

__all__ = [
    "check_memory",
    "check_placement",
    "compilation",
    "destroy_left",
    "destroy_unseen",
    "list_cache_files",
    "make_executor",
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
    with eval_modes(port):
        materialise_lazy_modules(port.wrapped, args, kwargs)
    if optimizer is not None:
        return _make_training_executor(port, findings, optimizer, args, kwargs)
    options = _options_that_report(port.inference_options, findings)
    return port.backend.module.inferenceModel(port.wrapped.for_inference(), options)


def _make_training_executor(
    port: Port, findings: PortFindings, optimizer: PortOptimizer, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    if not any(parameter.requires_grad for parameter in port.wrapped.parameters()):
        raise PortingError.of(
            "L003",
            message="no parameter of the model is trainable",
            place=caller_place(),
            help="call `requires_grad_(True)` on what should train, or use `ported.inference()`",
        )
    require_filled_pipeline(port.options)
    on_device = optimizer.match_before_compilation()
    options = _options_that_report(port.training_options, findings)
    if port.options.keep_gradients:
        anchor_gradients(port, options, on_device, args, kwargs)
    return port.backend.module.trainingModel(port.wrapped, options, optimizer=on_device)


def _options_that_report(options: Any, findings: PortFindings) -> Any:
    """Return a copy of the backend's options; a backend with findings of its own hands them over by it."""
    options = options.clone()
    if hasattr(options, "reportTo"):
        # a function, which is not copied with the options as a method and its object are
        options.reportTo(lambda finding: findings.defer(finding))
    return options


@contextmanager
def compilation(port: Port, findings: PortFindings, *, keeps_modes: bool) -> Iterator[Sequence[str]]:
    """Surround a compilation; the value names the stages that the trace has begun, in their order.

    The modules are in eval mode unless it `keeps_modes`.
    """
    modes = kept_modes if keeps_modes else eval_modes
    with torch.inference_mode(False), modes(port), _attributes_kept(port, findings):
        with mark_stages(port.model, port.options, backend=port.backend.module) as begun:
            yield begun
    for finding in port.wrapped.take_findings():
        findings.defer(finding)


def _attributes_kept(port: Port, findings: PortFindings) -> ContextManager[None]:
    """Keep a device's tensors out of the modules' attributes; the simulator does so where it captures."""
    if port.backend.is_simulator:
        return nullcontext()
    return attributes_kept(
        port.model,
        is_device_tensor=lambda tensor: tensor.device.type == "ipu",
        place_of=lambda module, name, _tensor: find_assignment(type(module), name),
        report=findings.defer,
    )


def list_cache_files(options: PortOptions) -> Set[str]:
    """List what is in the folder of executables, from which one tells what the vendor's compiler did."""
    folder = options.cache_dir
    return set(os.listdir(folder)) if folder is not None and os.path.isdir(folder) else set()


# -- where the step runs -----------------------------------------------------------------------------------------------


def check_placement(port: Port, executor: Any, begun: Sequence[str]) -> None:
    """Raise OptionError if the stages that a trace has begun are not those of the options, or cannot be placed so.

    P009 for their order and for an IPU without an operator, P010 for a parameter that operators on two IPUs use; the
    vendor's compiler says the last two by itself.
    """
    if not port.options.stages:
        return
    check_order(port.options, begun)
    step = port.backend.compiled_step(executor)
    if step is not None:
        _check_ipus(step.graph, port.options)
        _check_weights(step.graph)


def _check_ipus(graph: Any, options: PortOptions) -> None:
    used = {node.meta.get("ipu") for node in graph.graph.nodes if node.op == "call_function"}
    idle = sorted(set(range(options.num_ipus)) - used)
    if idle:
        raise OptionError.of(
            "P009",
            message=f"no operator runs on IPU {idle[0]}",
            place=caller_place(),
            notes="a module that contains another stage's module begins just before it, and has nothing to do itself",
            help="what comes before the first stage is on IPU 0: name the module with which IPU 1 begins",
        )


def _check_weights(graph: Any) -> None:
    names = {node: info.name for info, node in zip(graph.parameters, graph.placeholders)}
    ipus: Dict[str, Set[int]] = {}
    for node in graph.graph.nodes:
        ipu = node.meta.get("ipu")
        for used in node.all_input_nodes if node.op == "call_function" and ipu is not None else ():
            if used in names:
                ipus.setdefault(names[used], set()).add(ipu)
            if len(ipus.get(names.get(used, ""), ())) > 1:
                where = " and ".join(str(number) for number in sorted(ipus[names[used]]))
                module = node.meta.get("module_path") or "forward"
                raise OptionError.of(
                    "P010",
                    message=f"the parameter `{names[used]}` is used on IPU {where}",
                    place=node.meta.get("place") or caller_place(),
                    notes=f"`{module}` uses it on IPU {ipu}, and a weight lies on one IPU",
                    help="begin a stage on the weight's IPU where it is used again, as in `stages={..., 'head': 0}`",
                )


# -- whether it fits ---------------------------------------------------------------------------------------------------


def check_memory(port: Port, findings: PortFindings, optimizer: PortOptimizer, executor: Any) -> None:
    """Warn (M001) of a step that the simulator has compiled and that would not fit into an IPU.

    With `PortOptions(memory="error")` that is raised as a PortingError, with "ignore" nothing is looked at.
    """
    step = port.backend.compiled_step(executor)
    if step is None or port.options.memory == "ignore":
        return
    # on a machine with IPUs there is no capture, nor the torch that it wants
    look = importlib.import_module("porting.planning.compiled_look")
    finding = look.note_memory(step.graph, port.options, optimizer.device)
    if finding is None:
        return
    finding = dataclasses.replace(
        finding,
        place=caller_place(),
        label="the step is compiled here",
        help=(
            *finding.help[:1],
            "see all that would help: `print(porting.memory_report(ported, batch))`",
            'if no IPU is meant to run it: `PortOptions(memory="ignore")`',
        ),
    )
    if port.options.memory == "error":
        raise PortingError(dataclasses.replace(finding, severity=Severity.ERROR))
    findings.say(finding)


# -- the end -----------------------------------------------------------------------------------------------------------

_is_collecting = False
# How to end the executors that the garbage collector has found.
_LEFT: List[Callable[[], None]] = []


def _note_collection(phase: str, _counts: Mapping[str, int]) -> None:
    global _is_collecting
    _is_collecting = phase == "start"


gc.callbacks.append(_note_collection)


def destroy_unseen(destroy: Callable[..., None], *args: Any) -> None:
    """End the executors of a ported model that nobody keeps, by `destroy`; in a collection, as soon as that is safe.

    A collection happens at any moment: in the middle of another model's capture, or while torch goes through one of
    its tables, which operators change. Nothing is lost by waiting: a look at the weights fetches them as before.
    """
    if _is_collecting:
        _LEFT.append(functools.partial(destroy, *args))
        return
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        destroy(*args)


def destroy_left() -> None:
    """End the executors that were found by collections since the last time."""
    while _LEFT:
        destroy_unseen(_LEFT.pop())
