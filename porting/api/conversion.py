"""Turn a PyTorch model and its loss into a model that trains on an IPU: `to_ipu`.

Every program that ports a model calls it.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, Literal, Mapping, Optional, Sequence, Tuple, Union, overload

import torch
from torch import nn

from ..adapters import LossInForward, apply_precision, find_backend, to_backend_optimizer
from ..adapters.backends import Backend
from ..adapters.labels import Key, LabelKeys
from ..adapters.loss import Metric
from ..adapters.loss_terms import Losses
from ..adapters.padding_checks import note_statistics_of_one_replica
from ..adapters.record_parsers import teach_records
from ..adapters.stages import require_filled_pipeline, require_modules
from ..diagnostics import OptionError, log_finding, notify, say_kind, show_findings_alone
from ..host_tensors import walk_modules
from ..options import PortOptions
from ..remedies import Remedies
from ..remedies.operator_table import load_built_in
from ..structure import Structure, make_call_arguments
from .moves import FixedModule
from .optimizer import PortOptimizer, stop_watching
from .port import Port, PortFindings
from .ported_model import PortedModel

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    from .host_loop import HostLoopModel

    class _Settings(TypedDict, total=False):
        """What `to_ipu` takes whatever the loop."""

        options: Optional[PortOptions]
        example: Structure
        device: str

    class _StepSettings(_Settings, total=False):
        """What `to_ipu` takes where a call makes the step."""

        optimizer: Optional[torch.optim.Optimizer]
        max_grad_norm: Optional[float]
        label: LabelKeys
        label_transform: Optional[Callable[[Any], Any]]
        reduction: Optional[str]
        metrics: Optional[Mapping[str, Metric]]
        returns: Optional[Sequence[str]]
        loss_output: Optional[Key]


__all__ = ["to_ipu"]

# They need the capture, which a machine with IPUs does not have.
_LOOKS_AT_STEPS = ("porting.capture.users_code", "porting.capture.second_run", "porting.planning.memory_look")


@overload
def to_ipu(model: nn.Module, *, loop: Literal["host"], **settings: Unpack[_Settings]) -> HostLoopModel: ...


@overload
def to_ipu(
    model: nn.Module,
    loss: Optional[Losses] = None,
    *,
    loop: Literal["device"] = "device",
    **settings: Unpack[_StepSettings],
) -> PortedModel: ...


def to_ipu(
    model: nn.Module,
    loss: Optional[Losses] = None,
    *,
    optimizer: Optional[torch.optim.Optimizer] = None,
    max_grad_norm: Optional[float] = None,
    options: Optional[PortOptions] = None,
    example: Structure = None,
    device: str = "auto",
    label: LabelKeys = -1,
    label_transform: Optional[Callable[[Any], Any]] = None,
    reduction: Optional[str] = None,
    metrics: Optional[Mapping[str, Metric]] = None,
    returns: Optional[Sequence[str]] = None,
    loss_output: Optional[Key] = None,
    loop: str = "device",
) -> Union[PortedModel, HostLoopModel]:
    """Port `model` to the device: the loss moves into `forward`, the optimizer becomes the device's.

    `loss` is a module or function of output and label, a mapping of several, or None when the model returns its loss
    itself. `optimizer` is the torch optimizer of the model's parameters (SGD, Adam, AdamW, RMSprop) or one of the
    backend's; without one the device's default, SGD with a learning rate of 0.01, is used. `max_grad_norm` clips the
    norm of all gradients before each step, as `clip_grad_norm_` does in a loop on the host. `example` is a combined
    batch: the training step is compiled with it at once. `device` is "ipu", "sim" (the simulator on the CPU), the name
    of a registered backend (`register_backend`), or "auto": an IPU if there is one, else the simulator, which is said
    once. The environment variable PORTING_DEVICE decides when `device` is "auto".

    `label`, `label_transform`, `reduction`, `metrics`, `returns` and `loss_output` are those of `LossInForward`.

    With `loop="host"` loss and optimizer stay in the loop, which is not changed: `forward` and the backward pass run on
    the device. Any loss and any optimizer will do; each call costs more, as gradients and weights travel.

    The model's class is not edited and its parameters are shared: they are on the host whenever somebody looks at them.

    Raises DeviceError D001 for "ipu" without an IPU, UnsupportedOptimizerError for an optimizer that the device does
    not have, OptionError for options that it cannot apply, CaptureError and BatchError with `example`.

    >>> model = nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")
    >>> output, loss = ported(torch.ones(3, 4), torch.tensor([0, 1, 0]))
    >>> tuple(output.shape), tuple(loss.shape), ported.report().num_training_calls
    ((3, 2), (), 1)
    """
    options = PortOptions() if options is None else options
    _check_arguments(model, options, loop)
    settings: Dict[str, Any] = {
        "label_transform": label_transform,
        "reduction": reduction,
        "metrics": metrics,
        "returns": returns,
        "loss_output": loss_output,
    }
    if options.pipeline is not None or isinstance(options.recompute, str):
        options = _plan_placing(model, loss, example, optimizer, options, {**settings, "label": label})
    ported: Union[PortedModel, HostLoopModel]
    if loop == "host":
        host_loop = importlib.import_module("porting.api.host_loop")  # few programs keep their loop
        given = {"loss": loss, "optimizer": optimizer, "max_grad_norm": max_grad_norm, **settings}
        host_loop.check_host_loop(options, given)
        make_parts = functools.partial(_make_parts, device=device)
        port, findings, _optimizer = make_parts(model, None, options=options)
        ported = host_loop.HostLoopModel(port, findings, make_parts)
    else:
        settings.update(optimizer=optimizer, max_grad_norm=max_grad_norm, label=label)
        ported = PortedModel(*_make_parts(model, loss, options=options, device=device, **settings))
    if example is not None:
        args, kwargs = make_call_arguments(example)
        ported.compile(*args, **kwargs)
    return ported


def _plan_placing(
    model: nn.Module,
    loss: Optional[Losses],
    example: Structure,
    optimizer: Optional[torch.optim.Optimizer],
    options: PortOptions,
    settings: Mapping[str, Any],
) -> PortOptions:
    """Return the options with the stages and the recomputation that a plan for `example` has."""
    if example is None:
        name, what = ("pipeline", "the stages") if options.pipeline is not None else ("recompute", "what is kept")
        raise OptionError.at_caller(
            "P002",
            message=f"`{name}` is {getattr(options, name)!r}, and there is no batch to plan {what} for",
            help=("pass one: `to_ipu(..., example=batch)`", "or write down what `porting plan` prints"),
        )
    # without the torch that a capture wants there are no plans
    planner = importlib.import_module("porting.planning.planner")
    plain = options.replace(pipeline=None)
    ipus = None if options.pipeline is not None or options.stages else 1
    plan = planner.plan(model, loss, example, optimizer, plain, ipus=ipus, **settings)
    return plain.replace(recompute=plan.options.recompute, stages=plan.stages)


def _choose_look_at_outputs(backend: Backend) -> Optional[Callable[[Any], None]]:
    """Let the vendor's front end learn dataclasses; the simulator finds the tensors in them by itself."""
    module = backend.module
    if backend.is_simulator or not hasattr(module, "registerCustomArgParser"):
        return None
    return functools.partial(
        teach_records, register=module.registerCustomArgParser, parser_class=module.ICustomArgParser
    )


def _make_parts(
    model: nn.Module,
    loss: Optional[Losses],
    *,
    options: PortOptions,
    device: str,
    optimizer: Optional[torch.optim.Optimizer] = None,
    max_grad_norm: Optional[float] = None,
    label: LabelKeys = -1,
    **settings: Any,
) -> Tuple[Port, PortFindings, PortOptimizer]:
    """Make what a ported model is put together of, and say what was found; `settings` are for `LossInForward`."""
    backend = find_backend(device, simulator=_load_simulator)
    show_findings_alone()
    wrap = functools.partial(
        LossInForward,
        model,
        loss,
        backend=backend.module,
        label=label,
        allowed=options.allow,
        remedies=Remedies(without=options.without_remedies, strict=options.strict, backend=backend.module),
        note_output=_choose_look_at_outputs(backend),
        **settings,
    )
    # what can be refused is refused before the precision changes the model
    wrapped = wrap()
    require_modules(model, options)
    if optimizer is not None:
        require_filled_pipeline(options)
    stop_watching(optimizer)
    converted = _convert_optimizer(optimizer, wrapped, backend.module, max_grad_norm)
    plan = apply_precision(model, options, backend.module)
    if (plan.input_dtype, plan.output_dtype) != (None, None):
        wrapped = wrap(input_dtype=plan.input_dtype, loss_dtype=plan.loss_dtype, output_dtype=plan.output_dtype)
    findings = (*plan.findings, *note_statistics_of_one_replica(model, options))
    said = (*((backend.finding,) if backend.finding else ()), *findings)
    port = Port.of(model, wrapped, loss=loss, label=label, backend=backend, options=options)
    port_optimizer = PortOptimizer(port, optimizer, converted)
    if backend.finding is not None:
        log_finding(backend.finding, once=True)
    for finding in findings:
        if finding.code == "P006":  # true of every model, and of no line
            log_finding(finding, once=True)
        else:
            notify(finding)
    kept = PortFindings(said, allowed=options.allow, renewal=getattr(model, "_porting_renewal", ""))
    return port, kept, port_optimizer


def _check_arguments(model: object, options: object, loop: str) -> None:
    """Raise OptionError P002 for arguments that are wrong by themselves."""
    fault, remedy = "", ""
    for prefix, module in walk_modules(model) if isinstance(model, nn.Module) else ():
        if isinstance(module, FixedModule):
            name = ".".join(["model", *prefix.split(".")[:-1]])
            fault = f"`{name}` is {say_kind(module)}, which is ported already"
            remedy = "pass the module itself, `ported.model`, after `ported.destroy()`"
    if not isinstance(options, PortOptions):
        fault = f"`options` is {say_kind(options)}"
        remedy = "pass `porting.PortOptions(...)`: it becomes the backend's own options"
    if loop not in ("device", "host"):
        fault, remedy = f"`loop` is {loop!r}", "use 'device', where a call makes the step, or 'host'"
    if fault:
        raise OptionError.at_caller("P002", message=fault, help=remedy)


def _convert_optimizer(
    optimizer: Optional[torch.optim.Optimizer], wrapped: nn.Module, backend: ModuleType, max_grad_norm: Optional[float]
) -> Any:
    """Make the device's optimizer; None without one, for which the device has a default that clips nothing."""
    if optimizer is not None:
        return to_backend_optimizer(optimizer, wrapped, backend=backend, max_grad_norm=max_grad_norm)
    if max_grad_norm is None:
        return None
    raise OptionError.at_caller(
        "P002",
        message="`max_grad_norm` is given without an optimizer",
        help="pass the optimizer whose gradients it clips: `to_ipu(..., optimizer=optimizer, max_grad_norm=5.0)`",
    )


def _load_simulator() -> Any:
    """Import the simulator only where it is used: it needs a newer torch than the vendor's machines have.

    What the first call looks at a step with comes with it, so that this call spends its time on the step alone.
    """
    simulator = importlib.import_module("porting.simulator")
    for name in _LOOKS_AT_STEPS:
        importlib.import_module(name)
    load_built_in()
    return simulator
