"""Run Ignite on a device: the factories of `ignite.engine` by their own names, for a model or for a port of it.

Events, handlers, metrics, checkpoints, schedulers and progress bars are Ignite's. A plain model keeps its loop on the
host, see `DeviceCalls`; a port of `to_ipu(model, loss, optimizer=optimizer)` makes the whole step on the device.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch import nn

from ..adapters.filled_rows import count_rows, cut_rows, fill_rows
from ..api import PortedModel
from ..diagnostics import DeviceError, OptionError, require_extra
from ..options import PortOptions
from ..structure import Structure, make_call_arguments
from .device_calls import DeviceCalls, is_ported

__all__ = ["create_supervised_evaluator", "create_supervised_trainer"]

_engine = require_extra("ignite.engine", extra="ignite", message="`porting.integrations.ignite` needs Ignite")
_deterministic = require_extra("ignite.engine.deterministic", extra="ignite", message="needs Ignite")

_IN_THE_PORT = {
    "gradient_accumulation_steps": "`PortOptions(accumulation=N)`, with N times the rows in a batch",
    "model_transform": "`to_ipu(model, loss)` with a loss that takes what the model returns",
    "model_fn": "`to_ipu(model, loss)` with a model that takes what the loader gives",
}


def create_supervised_trainer(
    model: nn.Module,
    optimizer: Optional[torch.optim.Optimizer] = None,
    loss_fn: Optional[Callable[..., Any]] = None,
    *,
    options: Optional[PortOptions] = None,
    **settings: Any,
) -> Any:
    """Return an Engine that trains; `settings` are those of Ignite's function of this name.

    A plain `model` is called on the device while `loss_fn` and `optimizer` stay on the host; `options` are those of
    `to_ipu(model, loop="host")`. For a PortedModel a batch `(x, y)` is one call, which makes the step; its results go
    through `output_transform`, whose default is the loss as a number. Optimizer and loss need not be given
    then, and must be the port's.

    Raises OptionError P002 for settings that the device does in another way, DeviceError D003 for another `device`.
    """
    _refuse_settings(settings)
    if not isinstance(model, PortedModel):
        return _route_model(_engine.create_supervised_trainer(model, optimizer, loss_fn, **settings), model, options)
    _check_port(model, optimizer, loss_fn, options, settings)
    transform = settings.get("output_transform", _read_loss)
    prepare = settings.get("prepare_batch", _split_batch)

    def update(_trainer: object, batch: Structure) -> Any:
        x, y = prepare(batch, device=None, non_blocking=False)
        if not model.training:
            model.train()
        args, kwargs = make_call_arguments(x)
        labels = y if isinstance(y, (tuple, list)) else (y,)
        returned = model(*args, *labels, **kwargs)
        return transform(x, y, returned[0], model.loss_of(returned))

    if settings.get("deterministic"):
        return _deterministic.DeterministicEngine(update)
    return _engine.Engine(update)


def create_supervised_evaluator(
    model: nn.Module,
    metrics: Optional[Dict[str, Any]] = None,
    *,
    options: Optional[PortOptions] = None,
    **settings: Any,
) -> Any:
    """Return an Engine that evaluates; `settings` are those of Ignite's function of this name.

    A PortedModel predicts in eval mode, with the weights that it has learnt. Its executable has one number of rows,
    that of the first batch: a smaller one is filled up with copies of its last row, whose predictions are cut off
    again. A plain `model` is called on the device as it is.

    Raises OptionError P002 for settings that the device does in another way, DeviceError D003 for another `device`.
    """
    _refuse_settings(settings)
    if not isinstance(model, PortedModel):
        return _route_model(_engine.create_supervised_evaluator(model, metrics, **settings), model, options)
    predict = _Predictor(model)
    transform = settings.get("output_transform", lambda x, y, y_pred: (y_pred, y))
    convert = settings.get("model_transform", lambda output: output)
    prepare = settings.get("prepare_batch", _split_batch)

    def evaluate(_evaluator: object, batch: Structure) -> Any:
        x, y = prepare(batch, device=None, non_blocking=False)
        return transform(x, y, convert(predict(x)))

    evaluator = _engine.Engine(evaluate)
    for name, metric in (metrics or {}).items():
        metric.attach(evaluator, name)
    return evaluator


class _Predictor:
    """Predicts for batches of up to as many rows as the first one had."""

    def __init__(self, ported: PortedModel) -> None:
        self._inference = ported.inference()
        self._num_rows = 0

    def __call__(self, x: Structure) -> Any:
        num_rows = count_rows(x)
        self._num_rows = self._num_rows or num_rows
        args, kwargs = make_call_arguments(fill_rows(x, self._num_rows))
        returned = self._inference(*args, **kwargs)
        return cut_rows(returned, num_rows) if 0 < num_rows < self._num_rows else returned


def _route_model(engine: Any, model: nn.Module, options: Optional[PortOptions]) -> Any:
    """Let the process function of `engine` call the device; its `device_calls` record the calls."""
    if is_ported(model):
        return engine
    calls, process = DeviceCalls(model, options=options), engine._process_function

    def process_on_device(running: object, batch: Structure) -> Any:
        with calls.active():
            return process(running, batch)

    engine._process_function, engine.device_calls = process_on_device, calls
    return engine


def _split_batch(batch: Sequence[Any], **_device: object) -> Tuple[Any, Any]:
    x, y = batch
    return x, y


def _read_loss(_x: object, _y: object, _prediction: object, loss: torch.Tensor) -> float:
    """Return the mean loss of a call, which may have made several steps."""
    return float(loss.float().mean())


def _check_port(
    ported: PortedModel, optimizer: object, loss_fn: object, options: object, settings: Dict[str, Any]
) -> None:
    """Raise OptionError P002 for settings that a port has already, or can no longer get."""
    fault, remedy = "", ""
    if optimizer is not None and optimizer is not ported.port_optimizer.given:
        fault, remedy = "`optimizer` is not the one that the model was ported with", "leave it out"
    elif loss_fn is not None and loss_fn is not ported.port.loss:
        fault, remedy = "`loss_fn` is not the one that the model was ported with", "leave it out"
    elif options is not None:
        fault, remedy = "`options` are given for a model that is ported already", "give them to `to_ipu`"
    for name in _IN_THE_PORT:
        if name in settings and settings[name] not in (None, 1):
            fault, remedy = f"`{name}` is given for a port that makes the steps", f"leave it out: {_IN_THE_PORT[name]}"
    if fault:
        raise OptionError.at_caller("P002", message=fault, help=remedy)


def _refuse_settings(settings: Dict[str, Any]) -> None:
    """Raise for settings that name another device or cast on the host."""
    device = settings.get("device")
    if device is not None and torch.device(device).type != "cpu":
        raise DeviceError.at_caller(
            "D003",
            message=f"`device={device!r}` would send the batches to another device",
            help="leave `device` out: batches go to the device with the call",
        )
    if settings.get("amp_mode") or settings.get("scaler"):
        name = "amp_mode" if settings.get("amp_mode") else "scaler"
        raise OptionError.at_caller(
            "P002",
            message=f"`{name}` is for a GPU: it casts, or scales the loss, on the host",
            help="leave it out, and say `options=PortOptions(precision='mixed')`",
        )
