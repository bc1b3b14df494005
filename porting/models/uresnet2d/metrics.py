"""Metrics of pixels told apart: accuracies, and intersections over unions of the cosmic and neutrino classes.

Functions of logits and labels that a device can compute beside the loss: `to_ipu(..., metrics=METRICS)`.

B = events, P = planes (3), C = classes, H and W = height and width in pixels.
"""

from __future__ import annotations

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

PlaneMetric = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def total_accuracy(logits: Planes, labels: Planes) -> torch.Tensor:
    """Return the share of all pixels that are classified right, averaged over the planes."""
    return _averaged(_total_accuracy, logits, labels)


def non_background_accuracy(logits: Planes, labels: Planes) -> torch.Tensor:
    """Return the share that is classified right of the pixels that are no background, averaged over events and planes.

    A plane without such pixels makes it NaN: there is nothing to be right about.
    """
    return _averaged(_non_background_accuracy, logits, labels)


def cosmic_iou(logits: Planes, labels: Planes) -> torch.Tensor:
    """Return intersection over union of the pixels taken for cosmic and those that are, averaged; 1 without any."""
    return _averaged(_cosmic_iou, logits, labels)


def neutrino_iou(logits: Planes, labels: Planes) -> torch.Tensor:
    """Return intersection over union of the pixels taken for neutrino and those that are, averaged; 1 without any."""
    return _averaged(_neutrino_iou, logits, labels)


def mean_iou(logits: Planes, labels: Planes) -> torch.Tensor:
    """Return the mean of `cosmic_iou` and `neutrino_iou`."""
    return _averaged(_mean_iou, logits, labels)


def plane_metrics(logits: Planes, labels: Planes) -> Dict[str, torch.Tensor]:
    """Return all metrics of each plane and their averages, by names such as "plane0/mIoU" and "Average/mIoU".

    >>> found = plane_metrics(torch.zeros(1, 3, 3, 4, 4), torch.zeros(1, 3, 4, 4, dtype=torch.int64))
    >>> len(found), found["plane2/Total_Accuracy"], found["Average/Non_Bkg_Accuracy"]
    (20, tensor(1.), tensor(nan))
    """
    found: Dict[str, torch.Tensor] = {}
    for name, metric in _PLANE_METRICS.items():
        by_plane = [metric(*plane) for plane in zip(as_planes(logits), as_planes(labels))]
        found.update({f"plane{number}/{name}": value for number, value in enumerate(by_plane)})
        found[f"Average/{name}"] = PLANE_SHARE * torch.stack(by_plane).sum()
    return found


def _averaged(metric: PlaneMetric, logits: Planes, labels: Planes) -> torch.Tensor:
    by_plane = [metric(*plane) for plane in zip(as_planes(logits), as_planes(labels))]
    return PLANE_SHARE * torch.stack(by_plane).sum()


def _total_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (logits.argmax(1) == labels).float().mean()


def _non_background_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    is_hit = labels != BACKGROUND
    is_right = (logits.argmax(1) == labels) & is_hit
    return (_pixels(is_right) / _pixels(is_hit)).mean()


def _cosmic_iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _iou(logits.argmax(1) == COSMIC, labels == COSMIC)


def _neutrino_iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _iou(logits.argmax(1) == NEUTRINO, labels == NEUTRINO)


def _mean_iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return 0.5 * (_cosmic_iou(logits, labels) + _neutrino_iou(logits, labels))


def _iou(taken: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Intersection over union of masks_BHW, averaged over events; an event where both are empty has 1."""
    union = _pixels(taken | true)
    shares = _pixels(taken & true) / union.clamp_min(1.0)
    return torch.where(union == 0, torch.ones_like(shares), shares).mean()


def _pixels(mask: torch.Tensor) -> torch.Tensor:
    """Count the pixels of mask_BHW: counts_B."""
    return mask.float().sum(dim=(1, 2))


_PLANE_METRICS: Mapping[str, PlaneMetric] = {
    "Total_Accuracy": _total_accuracy,
    "Cosmic_IoU": _cosmic_iou,
    "Neutrino_IoU": _neutrino_iou,
    "Non_Bkg_Accuracy": _non_background_accuracy,
    "mIoU": _mean_iou,
}

METRICS: Mapping[str, Callable[[Planes, Planes], torch.Tensor]] = MappingProxyType(
    {
        "Average/Total_Accuracy": total_accuracy,
        "Average/Cosmic_IoU": cosmic_iou,
        "Average/Neutrino_IoU": neutrino_iou,
        "Average/Non_Bkg_Accuracy": non_background_accuracy,
        "Average/mIoU": mean_iou,
    }
)
"""The averages over the planes, by the names that CosmicTagger logs them under."""
