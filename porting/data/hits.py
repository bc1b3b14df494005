"""Hits of a wire plane as a list, as detectors store them, and the images that networks see.

P = planes, H and W = height and width in pixels: ticks of time, and wires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Tuple

import numpy as np
import torch

__all__ = ["Hits", "check_halving", "make_dense_images"]


@dataclass(frozen=True)
class Hits:
    """The pixels of one plane that saw something: their rows (ticks), columns (wires), charges and labels."""

    rows: np.ndarray
    columns: np.ndarray
    charges: np.ndarray
    labels: np.ndarray


def make_dense_images(
    planes: Sequence[Hits], *, height: int, width: int, downsample: int = 0
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make image_PHW (float32) and labels_PHW (int64) of the hits of each plane; other pixels have no charge, label 0.

    `downsample` is the number of times that height and width are halved: a pixel then has the mean charge of those that
    it stands for, and their largest label. ValueError for sides that cannot be halved that often.

    >>> hits = Hits(np.array([0, 3]), np.array([1, 2]), np.array([8.0, 4.0]), np.array([2, 1]))
    >>> make_dense_images([hits], height=4, width=4, downsample=1)[0]
    tensor([[[2., 0.],
             [0., 1.]]])
    """
    check_halving(height, width, downsample)
    height, width = height >> downsample, width >> downsample
    image = np.zeros((len(planes), height * width), dtype=np.float32)
    labels = np.zeros((len(planes), height * width), dtype=np.int64)
    for plane, hits in enumerate(planes):
        pixels = (hits.rows.astype(np.int64) >> downsample) * width + (hits.columns.astype(np.int64) >> downsample)
        # many hits may share a pixel: charges add up in float64
        charges = np.bincount(pixels, weights=hits.charges, minlength=height * width)
        image[plane] = charges / 4**downsample
        # of hits that share a pixel the last one is kept, and it has the largest label
        order = np.argsort(hits.labels, kind="stable")
        labels[plane, pixels[order]] = hits.labels[order]
    shape = (len(planes), height, width)
    return torch.from_numpy(image).view(shape), torch.from_numpy(labels).view(shape)


def check_halving(height: int, width: int, downsample: int) -> None:
    """Raise ValueError for a number of halvings that is negative, or that height and width do not allow."""
    if downsample < 0:
        raise ValueError(f"`downsample` is {downsample}; it counts how often the sides are halved")
    if height % 2**downsample or width % 2**downsample:
        raise ValueError(f"{height} x {width} pixels cannot be halved {downsample} times")
