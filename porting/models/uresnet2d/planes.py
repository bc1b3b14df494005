"""Planes of an event: what lies in one tensor, plane by plane.

B = events, P = planes (3), C = classes, H and W = height and width in pixels.
"""

from __future__ import annotations

from typing import Sequence, Tuple, Union

import torch

from .config import NUM_PLANES

__all__ = ["Planes", "as_planes", "chunk_planes"]

Planes = Union[torch.Tensor, Sequence[torch.Tensor]]
"""All planes in one tensor, with P as the second dimension, or a tensor for each plane."""


def as_planes(values: Planes) -> Tuple[torch.Tensor, ...]:
    """Give a tensor for each plane: logits_BPCHW -> three logits_BCHW, labels_BPHW -> three labels_BHW.

    What is a tensor for each plane already stays it.

    >>> [logits.shape for logits in as_planes(torch.zeros(2, 3, 5, 8, 9))][0]
    torch.Size([2, 5, 8, 9])
    """
    return values.unbind(1) if isinstance(values, torch.Tensor) else tuple(values)


def chunk_planes(labels: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """Give each plane's labels as classes that a cross-entropy takes: labels_BPHW -> three labels_BHW of int64.

    The `label_transform` of a port, so that it happens on the device. ValueError for labels of another shape.

    >>> [plane.shape for plane in chunk_planes(torch.zeros(2, 3, 8, 9, dtype=torch.int32))][0]
    torch.Size([2, 8, 9])
    """
    if labels.dim() != 4 or labels.shape[1] != NUM_PLANES:
        raise ValueError(f"labels of the shape {list(labels.shape)} are not labels_BPHW: [B, {NUM_PLANES}, H, W]")
    batch, _planes, height, width = labels.shape
    return tuple(plane.reshape(batch, height, width) for plane in labels.long().chunk(NUM_PLANES, dim=1))
