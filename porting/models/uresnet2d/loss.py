"""Compute the cross-entropy of pixels that are nearly all empty, with one of four weightings.

B = events, P = planes (3), C = classes, H and W = height and width in pixels.
"""

from __future__ import annotations

from typing import Callable, Mapping, Tuple

import torch
from torch import nn

from .planes import Planes, as_planes

__all__ = ["SCHEMES", "loss"]

LIGHT_WEIGHTS = (1.0, 1.5, 10.0)
"""Of background, cosmic and neutrino pixels, in the scheme "light"."""

EVEN_SHARE = 0.3333
"""Of each class, in the scheme "even"."""


def loss(logits: Planes, labels: Planes, *, scheme: str = "focal") -> torch.Tensor:
    """Add up the planes' cross-entropies of logits_BPCHW with labels_BPHW, or of as many tensors a plane.

    The loss of a plane is the weighted mean of its pixels, sum(weight x cross-entropy) / sum(weight), in float32. The
    `scheme` says how much a pixel weighs; weights are constants for the gradient.

    * "none": each pixel 1, a plain mean;
    * "light": 1, 1.5 and 10 for the classes background, cosmic and neutrino;
    * "even": 0.3333 / (count + 1), with the count of its class in the plane, so that classes weigh the same together;
    * "focal": (1 - p)^2, with the probability p of its class, so that pixels that are already right count little.

    Another scheme is a ValueError.

    >>> loss(torch.zeros(1, 3, 3, 4, 4), torch.zeros(1, 3, 4, 4, dtype=torch.int64)) / 3  # log(3)
    tensor(1.0986)
    """
    if scheme not in _WEIGHTS:
        raise ValueError(f"`scheme` is {scheme!r}; it can be {', '.join(map(repr, SCHEMES))}")
    losses = []
    for scores, classes in zip(as_planes(logits), as_planes(labels)):
        by_pixel = nn.functional.cross_entropy(scores.float(), classes.long(), reduction="none")
        weights = _WEIGHTS[scheme](by_pixel.detach(), classes, scores.shape[1])
        # weights of focal loss that all vanish mean that all pixels are right: a loss of zero
        losses.append((weights * by_pixel).sum() / weights.sum().clamp_min(torch.finfo(torch.float32).tiny))
    return torch.stack(losses).sum()


def _light_weights(by_pixel: torch.Tensor, labels: torch.Tensor, _num_classes: int) -> torch.Tensor:
    weights = torch.full_like(by_pixel, LIGHT_WEIGHTS[0])
    for label, weight in enumerate(LIGHT_WEIGHTS[1:], start=1):
        weights = torch.where(labels == label, torch.full_like(by_pixel, weight), weights)
    return weights


def _even_weights(by_pixel: torch.Tensor, labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    weights = torch.zeros_like(by_pixel)
    for label in range(num_classes):
        is_label = (labels == label).to(by_pixel.dtype)
        weights = weights + is_label * (EVEN_SHARE / (is_label.sum() + 1.0))
    return weights


_WEIGHTS: Mapping[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "none": lambda by_pixel, _labels, _num_classes: torch.ones_like(by_pixel),
    "light": _light_weights,
    "even": _even_weights,
    "focal": lambda by_pixel, _labels, _num_classes: (1.0 - torch.exp(-by_pixel)) ** 2,
}

SCHEMES: Tuple[str, ...] = tuple(_WEIGHTS)
"""The names of the ways to weigh pixels."""
