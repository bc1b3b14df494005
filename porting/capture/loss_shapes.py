"""Shape rules of losses, which give a number or, without a reduction, one number for each of what they compare.

B = samples, C = classes, F = features.
"""

# ruff: noqa: N803 - names of tensors end in their shapes
from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence

import torch
from torch import Tensor

from .plain_shapes import are_floats, are_plain, expect, has_any_layout, is_contiguous, new_tensor

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


def _infer_difference_loss(one: Tensor, other: Tensor, reduction: int = _MEAN) -> Tensor:
    # one number lies nowhere in particular, whatever it was computed from
    expect(are_plain(one, other, layout=is_contiguous if reduction == _NONE else has_any_layout))
    expect(one.shape == other.shape and 0 not in one.shape)
    return _infer_reduced(one.shape, one, reduction)


def _infer_threshold_loss(one: Tensor, other: Tensor, reduction: int = _MEAN, threshold: float = 1.0) -> Tensor:
    expect(threshold > 0)
    return _infer_difference_loss(one, other, reduction)


def _infer_weighted_loss(one: Tensor, other: Tensor, *weights: Optional[Tensor], reduction: int) -> Tensor:
    for weight in weights:
        expect(weight is None or (weight.dtype == one.dtype and weight.shape in (one.shape, one.shape[-1:])))
    return _infer_difference_loss(one, other, reduction)


def _infer_loss_of_two_classes(
    one: Tensor, other: Tensor, weight: Optional[Tensor] = None, reduction: int = _MEAN
) -> Tensor:
    return _infer_weighted_loss(one, other, weight, reduction=reduction)


def _infer_loss_of_logits(
    one: Tensor,
    other: Tensor,
    weight: Optional[Tensor] = None,
    positive: Optional[Tensor] = None,
    reduction: int = _MEAN,
) -> Tensor:
    return _infer_weighted_loss(one, other, weight, positive, reduction=reduction)


def _infer_divergence(one: Tensor, other: Tensor, reduction: int = _MEAN, *, log_target: bool = False) -> Tensor:
    expect(isinstance(log_target, bool))
    return _infer_difference_loss(one, other, reduction)


def _infer_embedding_loss(one: Tensor, other: Tensor, _margin: float = 1.0, reduction: int = _MEAN) -> Tensor:
    return _infer_difference_loss(one, other, reduction)


def _infer_count_loss(one: Tensor, other: Tensor, _is_log: bool, _is_full: bool, _eps: float, reduction: int) -> Tensor:
    return _infer_difference_loss(one, other, reduction)


def _infer_ranking_loss(
    one: Tensor, other: Tensor, target: Tensor, _margin: float = 0.0, reduction: int = _MEAN
) -> Tensor:
    # a single number has no order
    are_known = are_plain if reduction == _NONE else are_floats
    expect(are_known(one, other, target) and one.shape == other.shape == target.shape)
    return _infer_reduced(one.shape, one, reduction)


def _infer_cosine_loss(
    one_BF: Tensor, other_BF: Tensor, target_B: Tensor, _margin: float = 0.0, reduction: int = _MEAN
) -> Tensor:
    expect(are_plain(one_BF, other_BF, target_B) and one_BF.shape == other_BF.shape and one_BF.dim() == 2)
    expect(target_B.shape == one_BF.shape[:1])
    return _infer_reduced(target_B.shape, one_BF, reduction)


def _infer_triplet_loss(
    anchor_BF: Tensor,
    positive_BF: Tensor,
    negative_BF: Tensor,
    _margin: float = 1.0,
    _p: float = 2.0,
    _eps: float = 1e-6,
    _swap: bool = False,
    reduction: int = _MEAN,
) -> Tensor:
    expect(are_plain(anchor_BF, positive_BF, negative_BF) and anchor_BF.dim() == 2)
    expect(anchor_BF.shape == positive_BF.shape == negative_BF.shape)
    return _infer_reduced(anchor_BF.shape[:1], anchor_BF, reduction)


def _infer_margin_loss(
    scores_BC: Tensor,
    target: Tensor,
    p: float = 1,
    _margin: float = 1,
    weight: Optional[Tensor] = None,
    reduction: int = _MEAN,
) -> Tensor:
    expect(are_plain(scores_BC) and scores_BC.dim() == 2 and p in (1, 2) and weight is None)
    expect(target.dtype == torch.int64 and is_contiguous(target) and target.shape == scores_BC.shape[:1])
    return _infer_reduced(target.shape, scores_BC, reduction)


def _infer_label_margin_loss(scores_BC: Tensor, target_BC: Tensor, reduction: int = _MEAN) -> Tensor:
    expect(are_plain(scores_BC) and scores_BC.dim() == 2)
    expect(target_BC.dtype == torch.int64 and is_contiguous(target_BC) and target_BC.shape == scores_BC.shape)
    return _infer_reduced(scores_BC.shape[:1], scores_BC, reduction)


LOSSES: Dict[Any, Callable[..., Any]] = {
    aten.binary_cross_entropy.default: _infer_loss_of_two_classes,
    aten.binary_cross_entropy_with_logits.default: _infer_loss_of_logits,
    aten.cosine_embedding_loss.default: _infer_cosine_loss,
    aten.cross_entropy_loss.default: _infer_cross_entropy,
    aten.hinge_embedding_loss.default: _infer_embedding_loss,
    aten.huber_loss.default: _infer_threshold_loss,
    aten.kl_div.default: _infer_divergence,
    aten.l1_loss.default: _infer_difference_loss,
    aten.margin_ranking_loss.default: _infer_ranking_loss,
    aten.mse_loss.default: _infer_difference_loss,
    aten.multi_margin_loss.default: _infer_margin_loss,
    aten.multilabel_margin_loss.default: _infer_label_margin_loss,
    aten.nll_loss_nd.default: _infer_class_loss,
    aten.poisson_nll_loss.default: _infer_count_loss,
    aten.smooth_l1_loss.default: _infer_threshold_loss,
    aten.soft_margin_loss.default: _infer_difference_loss,
    aten.triplet_margin_loss.default: _infer_triplet_loss,
}
