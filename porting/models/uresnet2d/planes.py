"""Split and join the planes of an event in one tensor, and make random ones, to try the shapes of a batch.

`porting.data.events` makes tracks that can be learnt.

B = events, P = planes (3), C = classes, H and W = height and width in pixels.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple, Union

import torch

from .config import NUM_PLANES

__all__ = ["Planes", "as_planes", "chunk_planes", "example_batch"]

Planes = Union[torch.Tensor, Sequence[torch.Tensor]]
"""All planes in one tensor, with P as the second dimension, or a tensor for each plane."""


def as_planes(values: Planes) -> Tuple[torch.Tensor, ...]:
    """Give a tensor for each plane: logits_BPCHW -> three logits_BCHW, labels_BPHW -> three labels_BHW.

    Tensors that are split into planes already stay so.

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


def example_batch(config: Any, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make images_BPHW that are zero nearly everywhere, as wires are, and labels_BPHW that mark the rest.

    >>> from porting.models.uresnet2d import UResNet2DConfig
    >>> images, labels = example_batch(UResNet2DConfig(), batch_size=1)
    >>> images.shape == labels.shape, bool(((images > 0) == (labels > 0)).all())
    (True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, NUM_PLANES, *config.spatial_size)
    is_hit = torch.rand(shape, generator=generator) < 0.02
    charge = torch.rand(shape, generator=generator) + 0.1
    kind = torch.randint(1, config.num_classes, shape, generator=generator)
    return torch.where(is_hit, charge, torch.zeros(())), torch.where(is_hit, kind, torch.zeros_like(kind))
