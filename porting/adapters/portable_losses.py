"""Losses that the device lacks, written with operators that it has: the value and the gradient stay the same.

B = samples, C = classes; outputs are (B, C), (B, C, ...) or (C,), as for the losses themselves.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Optional, Tuple

import torch
import torch.nn.functional as F

from porting.support.function_modes import SelectiveMode

__all__ = ["PortableLosses"]


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

    def concerns(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        """Tell whether it is a loss that has a formula."""
        return func in _FORMULAS

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
