"""Several losses of one model: which output and which label each one compares, and with what weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

import torch
from torch import nn

from porting.adapters.labels import Key, LabelKeys
from porting.adapters.portable_losses import PortableLosses
from porting.adapters.returned_loss import make_scalar
from porting.diagnostics import OptionError, PortingError

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
        raise OptionError.at_caller("P002", message="`loss` is an empty mapping")
    terms: Dict[str, LossTerm] = {}
    for name, value in loss.items():
        terms[name] = value if isinstance(value, LossTerm) else _NamedTerm(value, output=name, label=name)
        _require_function(terms[name].function, f"loss[{name!r}]")
    return terms


def _require_function(function: Any, what: str) -> Any:
    if isinstance(function, type):
        fault, remedy = f"`{what}` is the class {function.__name__}", f"make an instance: `{function.__name__}()`"
    elif not callable(function):
        fault, remedy = f"`{what}` is {function!r}", "give a loss module or a function of output and label"
    else:
        return function
    raise OptionError.at_caller("P002", message=fault, help=remedy)


def compute_terms(
    terms: Mapping[str, LossTerm], output: Any, labels: Any, *, label: LabelKeys, reduction: Optional[str]
) -> Dict[str, torch.Tensor]:
    """Compute each term as a scalar, its weight included, with operators that the device has.

    `label` tells the names of a tuple of labels. Raises PortingError: L007 when the model does not return a term's
    output, L006 when there is no such label, and what `make_scalar` raises.
    """
    values = {}
    label_names = label if isinstance(label, tuple) else ()
    for name, term in terms.items():
        is_single = isinstance(term, _NamedTerm) and not isinstance(labels, (Mapping, tuple, list))
        picked = _pick_part("output", output, term.output, name, names=getattr(output, "_fields", ()))
        expected = _pick_part("label", labels, None if is_single else term.label, name, names=label_names)
        with PortableLosses():
            value = term.function(picked, expected)
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


_MISSING = {
    "output": ("L007", "which the model does not return", "the model returns"),
    "label": ("L006", "which the call does not have", "the labels are"),
}


def _pick_part(what: str, values: Any, key: Optional[Key], name: str, *, names: Sequence[Any]) -> Any:
    """Return the output or label at `key` for the loss `name`; `names` are those of the positions in a sequence."""
    if key is None:
        return values
    if isinstance(values, Mapping):
        if key in values:
            return values[key]
    elif isinstance(values, (tuple, list)):
        position = names.index(key) if isinstance(key, str) and key in names else key
        if isinstance(position, int) and -len(values) <= position < len(values):
            return values[position]
    code, fault, found = _MISSING[what]
    raise PortingError.at_caller(
        code,
        message=f"the loss `{name}` needs {what} {key!r}, {fault}",
        notes=f"{found} {_describe_value(values)}",
        help=f"say which {what} it is: `{{{name!r}: LossTerm(loss, output=..., label=...)}}`",
    )


def _describe_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with the keys {', '.join(repr(key) for key in value)}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values"
    return "one tensor" if isinstance(value, torch.Tensor) else f"one {type(value).__name__}"
