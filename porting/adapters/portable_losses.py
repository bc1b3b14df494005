"""Losses that the device lacks, written with operators that it has: the value and the gradient stay the same.

B = samples, C = classes; outputs are (B, C), (B, C, ...) or (C,), as for the losses themselves.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["PortableLosses", "make_portable"]


def make_portable(function: Any) -> Any:
    """Return a function of output and label that computes what the loss `function` does, or `function` itself.

    Others stand for class weights and label smoothing of `nn.CrossEntropyLoss`, class weights of `nn.NLLLoss`, and
    `nn.HuberLoss`. Classes derived from these are left alone.

    >>> output, label = torch.tensor([[1.0, 3.0]]), torch.tensor([0])
    >>> loss = nn.CrossEntropyLoss(label_smoothing=0.5)
    >>> torch.allclose(make_portable(loss)(output, label), loss(output, label))
    True
    """
    make = _FORMULAS.get(type(function))
    return function if make is None else make(function) or function


class PortableLosses(TorchFunctionMode):
    """A context in which calls of torch's loss functions are computed as `make_portable` does.

    A device leaves label smoothing out and says so in its log alone; it refuses class weights and `huber_loss`.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute a loss that the device lacks by other operators, and pass everything else on."""
        kwargs = kwargs or {}
        make = _FUNCTIONS.get(func)
        formula = None if make is None else make(*args, **kwargs)
        return func(*args, **kwargs) if formula is None else formula()


def _compute_class_loss(
    kind: Any,
    output: torch.Tensor,
    target: torch.Tensor,
    weight: Optional[torch.Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Optional[Callable[[], torch.Tensor]]:
    """Return what a call of the function of the loss `kind` computes, where the device needs other operators for it."""
    is_elsewhere = weight is not None and weight.device != output.device
    if size_average is not None or reduce is not None or is_elsewhere or not 0.0 <= label_smoothing <= 1.0:
        return None
    smoothing = {"label_smoothing": label_smoothing} if label_smoothing else {}
    loss = kind(weight=weight, ignore_index=ignore_index, reduction=reduction, **smoothing)
    formula = make_portable(loss)
    return None if formula is loss else functools.partial(formula, output, target)


def _compute_huber(
    output: torch.Tensor,
    target: torch.Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Optional[torch.Tensor] = None,
) -> Optional[Callable[[], torch.Tensor]]:
    """Return what a call of `F.huber_loss` computes; the device has none."""
    if weight is not None:
        return None
    return functools.partial(_make_huber(nn.HuberLoss(reduction=reduction, delta=delta)), output, target)


_FUNCTIONS: Any = {
    F.cross_entropy: functools.partial(_compute_class_loss, nn.CrossEntropyLoss),
    F.huber_loss: _compute_huber,
    F.nll_loss: functools.partial(_compute_class_loss, nn.NLLLoss),
}

_Formula = Optional[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]


def _make_cross_entropy(loss: nn.CrossEntropyLoss) -> _Formula:
    if loss.weight is None and not loss.label_smoothing:
        return None

    def formula(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        log_probabilities = F.log_softmax(output, dim=_find_class_dim(output))
        return _compute_likelihood(log_probabilities, label, loss, smoothing=loss.label_smoothing)

    return formula


def _make_likelihood(loss: nn.NLLLoss) -> _Formula:
    if loss.weight is None:
        return None
    return lambda output, label: _compute_likelihood(output, label, loss, smoothing=0.0)


def _make_huber(loss: nn.HuberLoss) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda output, label: loss.delta * F.smooth_l1_loss(output, label, reduction=loss.reduction, beta=loss.delta)


_FORMULAS: Any = {nn.CrossEntropyLoss: _make_cross_entropy, nn.NLLLoss: _make_likelihood, nn.HuberLoss: _make_huber}


def _find_class_dim(output: torch.Tensor) -> int:
    return 0 if output.dim() == 1 else 1


def _compute_likelihood(
    log_probabilities: torch.Tensor, label: torch.Tensor, loss: Any, *, smoothing: float
) -> torch.Tensor:
    dim = _find_class_dim(log_probabilities)
    class_weights = None if loss.weight is None else loss.weight.to(log_probabilities.dtype)
    if label.is_floating_point():
        values, divisor = _compute_for_probabilities(log_probabilities, label, class_weights, dim, smoothing)
    else:
        values, divisor = _compute_for_classes(
            log_probabilities, label, class_weights, dim, smoothing, loss.ignore_index
        )
    if loss.reduction == "none":
        return values
    return values.sum() if loss.reduction == "sum" else values.sum() / divisor


def _compute_for_classes(
    log_probabilities: torch.Tensor,
    label: torch.Tensor,
    class_weights: Optional[torch.Tensor],
    dim: int,
    smoothing: float,
    ignored: int,
) -> Tuple[torch.Tensor, Any]:
    """Return the loss of each sample and the sum of their weights; ignored samples have none."""
    is_counted = (label != ignored).to(log_probabilities.dtype)
    known = torch.where(label != ignored, label, torch.zeros_like(label, device=label.device))
    sample_weights = is_counted if class_weights is None else class_weights[known] * is_counted
    values = -log_probabilities.gather(dim, known.unsqueeze(dim)).squeeze(dim) * sample_weights
    if smoothing:
        share = smoothing / log_probabilities.shape[dim]
        values = (1 - smoothing) * values - share * _weight_classes(log_probabilities, class_weights, dim).sum(
            dim
        ) * is_counted
    return values, sample_weights.sum()


def _compute_for_probabilities(
    log_probabilities: torch.Tensor,
    label: torch.Tensor,
    class_weights: Optional[torch.Tensor],
    dim: int,
    smoothing: float,
) -> Tuple[torch.Tensor, Any]:
    """Return the loss of each sample and their number."""
    num_classes = log_probabilities.shape[dim]
    smoothed = label * (1 - smoothing) + smoothing / num_classes
    values = -(_weight_classes(log_probabilities, class_weights, dim) * smoothed).sum(dim)
    return values, values.numel()


def _weight_classes(log_probabilities: torch.Tensor, class_weights: Optional[torch.Tensor], dim: int) -> torch.Tensor:
    if class_weights is None:
        return log_probabilities
    return log_probabilities * class_weights.reshape(-1, *[1] * (log_probabilities.dim() - dim - 1))
