"""Compute several losses of one model: which output and which label each compares, and with what weight.

`LossInForward` uses it. Losses that the device lacks are written with operators that it has, with the same value and
gradient. B = samples, C = classes; outputs are (B, C), (B, C, ...) or (C,), as for the losses themselves.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.labels import Key, LabelKeys
from porting.adapters.returned_loss import make_scalar
from porting.diagnostics import OptionError, PortingError
from porting.structure import Structure, field_names, is_record, read_fields
from porting.support.function_modes import Args, Kwargs, SelectiveMode

__all__ = [
    "LossFunction",
    "LossTerm",
    "Losses",
    "PortableLosses",
    "compute_terms",
    "make_terms",
    "name_function",
    "sum_losses",
]

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


def _require_function(function: object, what: str) -> Any:
    if isinstance(function, type):
        fault, remedy = f"`{what}` is the class {function.__name__}", f"make an instance: `{function.__name__}()`"
    elif not callable(function):
        fault, remedy = f"`{what}` is {function!r}", "give a loss module or a function of output and label"
    else:
        return function
    raise OptionError.at_caller("P002", message=fault, help=remedy)


def compute_terms(
    terms: Mapping[str, LossTerm], output: Structure, labels: object, *, label: LabelKeys, reduction: Optional[str]
) -> Dict[str, torch.Tensor]:
    """Compute each term as a scalar, its weight included, with operators that the device has.

    `label` tells the names of a tuple of labels. Raises PortingError: L007 when the model does not return a term's
    output, L006 when there is no such label, and what `make_scalar` raises.
    """
    values = {}
    label_names = label if isinstance(label, tuple) else ()
    for name, term in terms.items():
        is_single = isinstance(term, _NamedTerm) and not isinstance(labels, (Mapping, tuple, list))
        picked = _pick_part("output", output, term.output, name, names=field_names(output))
        expected = _pick_part("label", labels, None if is_single else term.label, name, names=label_names)
        with PortableLosses():
            value = term.function(picked, expected)
        scalar = make_scalar(value, name=f"the loss {name_function(term.function)}", reduction=reduction)
        values[name] = scalar if term.weight == 1.0 else scalar * term.weight
    return values


def sum_losses(losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Add the terms up, in their order."""
    # without the zero that Python's `sum` begins with, which would be an operator
    return functools.reduce(lambda one, other: one + other, losses.values())


def name_function(function: Callable[..., Any]) -> str:
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


def _pick_part(what: str, values: object, key: Optional[Key], name: str, *, names: Sequence[Any]) -> Any:
    """Return the output or label at `key` for the loss `name`; `names` are those of the positions in a sequence."""
    if key is None:
        return values
    if is_record(values):
        values = tuple(read_fields(values).values())
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


def _describe_value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with the keys {', '.join(repr(key) for key in value)}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values"
    return "one tensor" if isinstance(value, torch.Tensor) else f"one {type(value).__name__}"


class PortableLosses(SelectiveMode):
    """A context in which torch's loss functions, and the modules that call them, use operators of the device.

    A device leaves label smoothing out and says so in its log alone; it refuses class weights and `huber_loss`.

    >>> output, label = torch.tensor([[1.0, 3.0]]), torch.tensor([0])
    >>> loss = torch.nn.CrossEntropyLoss(label_smoothing=0.5)
    >>> with PortableLosses():
    ...     portable = loss(output, label)
    >>> torch.allclose(portable, loss(output, label))
    True
    """

    def concerns(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> bool:
        """Tell whether it is a loss that has a formula."""
        return func in _FORMULAS

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = _FORMULAS.get(func)
        loss = None if formula is None else formula(*args, **kwargs)
        return func(*args, **kwargs) if loss is None else loss


def _compute_class_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: Optional[torch.Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    takes_logits: bool,
) -> Optional[torch.Tensor]:
    """Compute the loss with class weights or label smoothing; None for a call that torch is to answer, or to refuse."""
    is_elsewhere = weight is not None and weight.device != input.device
    if size_average is not None or reduce is not None or is_elsewhere or not 0.0 <= label_smoothing <= 1.0:
        return None
    if weight is None and not label_smoothing:
        return None
    dim = 0 if input.dim() == 1 else 1
    log_probabilities = F.log_softmax(input, dim=dim) if takes_logits else input
    weight = None if weight is None else weight.to(log_probabilities.dtype)
    share = label_smoothing / log_probabilities.shape[dim]
    divisor: Any
    if target.is_floating_point():
        smoothed = target * (1 - label_smoothing) + share
        values = -(_weight_classes(log_probabilities, weight, dim) * smoothed).sum(dim)
        divisor = values.numel()
    else:
        is_counted = (target != ignore_index).to(log_probabilities.dtype)
        # any class will do for an ignored sample, whose weight is zero
        known = torch.where(target != ignore_index, target, torch.zeros_like(target, device=target.device))
        sample_weights = is_counted if weight is None else weight[known] * is_counted
        values = -log_probabilities.gather(dim, known.unsqueeze(dim)).squeeze(dim) * sample_weights
        if label_smoothing:
            values = (1 - label_smoothing) * values
            values = values - share * _weight_classes(log_probabilities, weight, dim).sum(dim) * is_counted
        divisor = sample_weights.sum()
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.sum() / divisor


def _weight_classes(log_probabilities: torch.Tensor, weight: Optional[torch.Tensor], dim: int) -> torch.Tensor:
    if weight is None:
        return log_probabilities
    return log_probabilities * weight.reshape(-1, *[1] * (log_probabilities.dim() - dim - 1))


def _compute_huber(
    input: torch.Tensor,
    target: torch.Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Optional[torch.Tensor] = None,
) -> Optional[torch.Tensor]:
    """Compute what `F.huber_loss` does, unless it weights elements."""
    return delta * F.smooth_l1_loss(input, target, reduction=reduction, beta=delta) if weight is None else None


_FORMULAS: Dict[Any, Any] = {
    F.cross_entropy: functools.partial(_compute_class_loss, takes_logits=True),
    F.huber_loss: _compute_huber,
    F.nll_loss: functools.partial(_compute_class_loss, takes_logits=False),
}
