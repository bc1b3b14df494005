"""Around the models: logging, errors, enumerations, printing, attributes, versions of the hardware."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
from typing import Any, Callable, Dict

import torch
from torch import nn

_ENUMERATIONS = (
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoaderMode",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "OutputMode",
    "OverlapMode",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "VariableRetrievalMode",
)
_FUNCTIONS = (
    "trainingModel",
    "inferenceModel",
    "load",
    "setLogLevel",
    "ctc_beam_search_decoder",
    "for_loop",
    "ipu_print_tensor",
    "identity_loss",
    "custom_op",
    "serializedMatMul",
    "BeginBlock",
    "AsynchronousDataAccessor",
)


def _level(value: Any) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        poptorch.setLogLevel(value)
        return logging.getLogger("poptorch::python").level

    return call


def _members(name: str) -> Callable[[Any], Any]:
    return lambda p: {member.name: [member.value, str(member)] for member in getattr(p, name)}


def _names(name: str) -> Callable[[Any], Any]:
    return lambda p: list(inspect.signature(getattr(p, name)).parameters)


def _made_error(poptorch: Any) -> Any:
    error = poptorch.createPoptorchError("it went wrong")
    return [type(error).__name__, str(error), error.type, error.message, error.location]


def _classes(poptorch: Any) -> Any:
    return [
        [base.__name__ for base in getattr(poptorch, name).__bases__]
        for name in ("RecoverableError", "UnrecoverableError")
    ]


def _printed(what: Any) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            poptorch.print(what)
        return text.getvalue()

    return call


def _attributed(poptorch: Any) -> Any:
    with poptorch.Attribute(test={"a": "1"}):
        with poptorch.Attribute(test={"b": "2"}):
            return poptorch.options.Attribute._current_attrs


CALLS: Dict[str, Callable[[Any], Any]] = {
    **{
        f"level {level!r}": _level(level)
        for level in ("DEBUG", "INFO", "ERR", "OFF", "TRACE", 1, 4, 5, "LOUD", None, "debug", 2.0)
    },
    **{f"members of {name}": _members(name) for name in _ENUMERATIONS},
    **{f"arguments of {name}": _names(name) for name in _FUNCTIONS},
    "an error": _made_error,
    "classes of errors": _classes,
    "print a module": _printed(nn.Sequential(nn.Linear(2, 3), nn.ReLU())),
    "print a text": _printed("text"),
    "hardware for nobody": lambda p: p.ipuHardwareIsAvailable(10**6),
    "attributes inside each other": _attributed,
    "attributes of a number": lambda p: p.accessAttributes(3),
    "attributes of another text": lambda p: p.accessAttributes("text"),
    "attributes in JSON": lambda p: p.accessAttributes('{"a": [1, 2]}'),
    "a file that is none": lambda p: p.load("no_such_file.poptorch"),
    "the beginning of the version": lambda p: p.__version__.split("-")[0].split(".")[:2],
    "a new torch tensor is not on the device": lambda p: str(torch.ones(1).device),
}
