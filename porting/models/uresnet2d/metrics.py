"""Measure how well pixels are classified: accuracies, and intersections over unions of cosmic and neutrino pixels.

Functions of logits and labels that a device can compute beside the loss: `to_ipu(..., metrics=METRICS)`.

B = events, P = planes (3), C = classes, H and W = height and width in pixels.
"""

from __future__ import annotations

import functools
import inspect
from types import MappingProxyType
from typing import Callable, Dict, Mapping

import torch

from .planes import Planes, as_planes

__all__ = [
    "METRICS",
    "cosmic_iou",
    "mean_iou",
    "neutrino_iou",
    "non_background_accuracy",
    "plane_metrics",
    "total_accuracy",
]

BACKGROUND, COSMIC, NEUTRINO = 0, 1, 2
"""The classes of a pixel."""

PLANE_SHARE = 0.3333333
"""The part of an average over planes that each has; the original's digits, which make 0.9999999 of three ones."""

Metric = Callable[[Planes, Planes], torch.Tensor]


def _average_planes(metric: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Metric:
    """Make a metric of all planes from that of one plane, which `plane_metrics` uses alone."""

    @functools.wraps(metric)
    def average(logits: Planes, labels: Planes) -> torch.Tensor:
        by_plane = [metric(*plane) for plane in zip(as_planes(logits), as_planes(labels))]
        return PLANE_SHARE * torch.stack(by_plane).sum()

    return average


@_average_planes
def total_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the share of all pixels that are classified right, averaged over the planes."""
    return (logits.argmax(1) == labels).float().mean()


@_average_planes
def non_background_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the share that is classified right of the pixels that are no background, averaged over events and planes.

    A plane without such pixels makes it NaN: there is nothing to be right about.
    """
    is_hit = labels != BACKGROUND
    is_right = (logits.argmax(1) == labels) & is_hit
    return (_count_pixels(is_right) / _count_pixels(is_hit)).mean()


@_average_planes
def cosmic_iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return intersection over union of the pixels taken for cosmic and those that are, averaged; 1 without any."""
    return _compute_iou(logits, labels, COSMIC)


@_average_planes
def neutrino_iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return intersection over union of the pixels taken for neutrino and those that are, averaged; 1 without any."""
    return _compute_iou(logits, labels, NEUTRINO)


@_average_planes
def mean_iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean of `cosmic_iou` and `neutrino_iou`."""
    return 0.5 * (_compute_iou(logits, labels, COSMIC) + _compute_iou(logits, labels, NEUTRINO))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "Average/Total_Accuracy": total_accuracy,
        "Average/Cosmic_IoU": cosmic_iou,
        "Average/Neutrino_IoU": neutrino_iou,
        "Average/Non_Bkg_Accuracy": non_background_accuracy,
        "Average/mIoU": mean_iou,
    }
)
"""The averages over the planes, by the names that CosmicTagger logs them under."""


def plane_metrics(logits: Planes, labels: Planes) -> Dict[str, torch.Tensor]:
    """Return all metrics of each plane and their averages, by names such as "plane0/mIoU" and "Average/mIoU".

    >>> found = plane_metrics(torch.zeros(1, 3, 3, 4, 4), torch.zeros(1, 3, 4, 4, dtype=torch.int64))
    >>> len(found), found["plane2/Total_Accuracy"], found["Average/Non_Bkg_Accuracy"]
    (20, tensor(1.), tensor(nan))
    """
    found: Dict[str, torch.Tensor] = {}
    for name, average in METRICS.items():
        metric = inspect.unwrap(average)
        for number, plane in enumerate(zip(as_planes(logits), as_planes(labels))):
            found[name.replace("Average", f"plane{number}")] = metric(*plane)
        found[name] = average(logits, labels)
    return found


def _compute_iou(logits: torch.Tensor, labels: torch.Tensor, kind: int) -> torch.Tensor:
    """Compute the intersection over union of a class, averaged over events; an event without such pixels has 1."""
    taken, true = logits.argmax(1) == kind, labels == kind
    union = _count_pixels(taken | true)
    shares = _count_pixels(taken & true) / union.clamp_min(1.0)
    return torch.where(union == 0, torch.ones_like(shares), shares).mean()


def _count_pixels(mask: torch.Tensor) -> torch.Tensor:
    """Count the pixels of mask_BHW: counts_B."""
    return mask.float().sum(dim=(1, 2))
