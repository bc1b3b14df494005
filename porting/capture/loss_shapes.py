"""Shape rules of losses, which give a number or, without a reduction, one number for each of what they compare.

B = samples, C = classes.
"""

# ruff: noqa: N803 - names of tensors end in their shapes
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence

import torch
from torch import Tensor

from ..torch_insides.operators import OpOverload
from .operator_schema import name_arguments
from .plain_shapes import are_plain, expect, has_any_layout, is_contiguous, new_tensor

__all__ = ["LOSSES"]

aten = torch.ops.aten

_NONE, _MEAN, _SUM = 0, 1, 2


def _infer_reduced(shape: Sequence[int], like: Tensor, reduction: int) -> Tensor:
    expect(reduction in (_NONE, _MEAN, _SUM))
    return new_tensor(shape if reduction == _NONE else (), like)


def _infer_class_loss(
    logits_BC: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    reduction: int = _MEAN,
    _skip: int = -100,
    smoothing: float = 0,
) -> Tensor:
    """Lose by logits or log-probabilities (samples, classes, ...) for the indices of the right classes."""
    shape = tuple(logits_BC.shape)
    expect(len(shape) >= 2 and 0 <= smoothing < 1 and are_plain(logits_BC, weight))
    expect(weight is None or tuple(weight.shape) == shape[1:2])
    expect(target.dtype == torch.int64 and is_contiguous(target) and tuple(target.shape) == (shape[0], *shape[2:]))
    return _infer_reduced(target.shape, logits_BC, reduction)


def _infer_cross_entropy(logits_BC: Tensor, target: Tensor, *settings: Any) -> Tensor:
    """Lose by logits for the right classes, or for the probability of each class."""
    if not target.dtype.is_floating_point:
        return _infer_class_loss(logits_BC, target, *settings)
    expect(are_plain(logits_BC, target) and logits_BC.shape == target.shape and logits_BC.dim() >= 2)
    return _infer_class_loss(
        logits_BC, new_tensor((target.shape[0], *target.shape[2:]), target, torch.int64), *settings
    )


def _infer_pair_loss(operator: OpOverload, one: Tensor, other: Tensor, *args: object, **kwargs: object) -> Tensor:
    """Lose by each number of one tensor and the number of the other at the same place, perhaps weighted."""
    settings = name_arguments(operator, (one, other, *args), kwargs)
    # one number lies nowhere in particular, whatever it was computed from
    expect(are_plain(one, other, layout=is_contiguous if settings["reduction"] == _NONE else has_any_layout))
    expect(one.shape == other.shape and settings.get("delta", 1) > 0 and settings.get("beta", 1) > 0)
    for weight in (settings.get("weight"), settings.get("pos_weight")):
        expect(weight is None or (weight.dtype == one.dtype and weight.shape in (one.shape, one.shape[-1:])))
    return _infer_reduced(one.shape, one, settings["reduction"])


# Those of few numbers, such as the losses of triplets, are tried: see `tried_shapes`.
LOSSES: Dict[Any, Callable[..., Any]] = {
    **{
        operator.default: partial(_infer_pair_loss, operator.default)
        for operator in (
            aten.binary_cross_entropy,
            aten.binary_cross_entropy_with_logits,
            aten.hinge_embedding_loss,
            aten.huber_loss,
            aten.kl_div,
            aten.l1_loss,
            aten.mse_loss,
            aten.poisson_nll_loss,
            aten.smooth_l1_loss,
            aten.soft_margin_loss,
        )
    },
    aten.cross_entropy_loss.default: _infer_cross_entropy,
    aten.nll_loss_nd.default: _infer_class_loss,
}
