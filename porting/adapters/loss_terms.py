"""Several losses of one model: which output and which label each one compares, and with what weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Union

import torch
from torch import nn

from porting.adapters.labels import Key, LabelKeys
from porting.adapters.portable_losses import make_portable
from porting.adapters.returned_loss import make_scalar
from porting.diagnostics import OptionError, PortingError, caller_place

__all__ = ["LossFunction", "LossTerm", "Losses", "compute_terms", "make_terms", "name_function"]

LossFunction = Callable[[Any, Any], torch.Tensor]
"""A loss module or function of the model's output and the label."""


@dataclass(frozen=True)
class LossTerm:
    """One of several losses: `weight * function(output[output], labels[label])`.

    `output` is a position in or a key of what the model returns, `label` one of the labels; None means the whole.

    >>> LossTerm(nn.MSELoss(), output="depth", label="depth", weight=0.5).weight
    0.5
    """

    function: LossFunction
    output: Optional[Key] = None
    label: Optional[Key] = None
    weight: float = 1.0


@dataclass(frozen=True)
class _NamedTerm(LossTerm):
    """A term made of `{"name": function}`: that output, and that label unless there is only one for all."""


Losses = Union[LossFunction, Mapping[str, Union[LossFunction, LossTerm]]]
"""One loss, or several by name."""


def make_terms(loss: Losses) -> Dict[str, LossTerm]:
    """Turn one loss or a mapping of losses into terms by name; the only one of a single loss is called `loss`.

    Raises OptionError P002 for anything that cannot be called, and for a class in the place of its instance.
    """
    if not isinstance(loss, Mapping):
        return {"loss": LossTerm(_require_function(loss, "loss"))}
    if not loss:
        raise OptionError.of("P002", message="`loss` is an empty mapping", place=caller_place())
    return {name: _make_term(name, value) for name, value in loss.items()}


def _make_term(name: str, value: Any) -> LossTerm:
    if isinstance(value, LossTerm):
        _require_function(value.function, f"loss[{name!r}]")
        return value
    return _NamedTerm(_require_function(value, f"loss[{name!r}]"), output=name, label=name)


def _require_function(function: Any, what: str) -> Any:
    if isinstance(function, type):
        fault, remedy = f"`{what}` is the class {function.__name__}", f"make an instance: `{function.__name__}()`"
    elif not callable(function):
        fault, remedy = f"`{what}` is {function!r}", "give a loss module or a function of output and label"
    else:
        return function
    raise OptionError.of("P002", message=fault, place=caller_place(), help=remedy)


def compute_terms(
    terms: Mapping[str, LossTerm], output: Any, labels: Any, *, label: LabelKeys, reduction: Optional[str]
) -> Dict[str, torch.Tensor]:
    """Compute each term as a scalar, its weight included, with operators that the device has.

    `label` tells the names of a tuple of labels. Raises PortingError: L007 when the model does not return a term's
    output, L006 when there is no such label, and what `make_scalar` raises.
    """
    values = {}
    for name, term in terms.items():
        picked = _pick_output(output, term.output, name)
        value = make_portable(term.function)(picked, _pick_label(labels, term, name, label=label))
        scalar = make_scalar(value, name=f"the loss {name_function(term.function)}", reduction=reduction)
        values[name] = scalar if term.weight == 1.0 else scalar * term.weight
    return values


def name_function(function: Any) -> str:
    """Name a loss or metric as its author did, for messages.

    >>> name_function(nn.MSELoss()), name_function(torch.nn.functional.mse_loss)
    ('`MSELoss`', '`mse_loss`')
    """
    name = type(function).__name__ if isinstance(function, nn.Module) else getattr(function, "__name__", None)
    return f"`{name or type(function).__name__}`"


def _pick_output(output: Any, key: Optional[Key], name: str) -> Any:
    if key is None:
        return output
    if isinstance(output, Mapping):
        if key in output:
            return output[key]
    elif isinstance(output, (tuple, list)):
        position = list(getattr(output, "_fields", ())).index(key) if key in getattr(output, "_fields", ()) else key
        if isinstance(position, int) and -len(output) <= position < len(output):
            return output[position]
    raise PortingError.of(
        "L007",
        message=f"the loss `{name}` needs output {key!r}, which the model does not return",
        place=caller_place(),
        notes=f"the model returns {_describe_value(output)}",
        help=f"say which output it is: `{{{name!r}: LossTerm(loss, output=..., label=...)}}`",
    )


def _pick_label(labels: Any, term: LossTerm, name: str, *, label: LabelKeys) -> Any:
    key = term.label
    if key is None:
        return labels
    if isinstance(labels, Mapping):
        if key in labels:
            return labels[key]
    elif isinstance(labels, (tuple, list)):
        names = label if isinstance(label, tuple) else ()
        position = names.index(key) if isinstance(key, str) and key in names else key
        if isinstance(position, int) and -len(labels) <= position < len(labels):
            return labels[position]
    elif isinstance(term, _NamedTerm):
        return labels
    raise PortingError.of(
        "L006",
        message=f"the loss `{name}` needs label {key!r}, which the call does not have",
        place=caller_place(),
        notes=f"the labels are {_describe_value(labels)}",
        help=f"say which label it is: `{{{name!r}: LossTerm(loss, output=..., label=...)}}`",
    )


def _describe_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with the keys {', '.join(repr(key) for key in value)}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values"
    return "one tensor" if isinstance(value, torch.Tensor) else f"one {type(value).__name__}"
