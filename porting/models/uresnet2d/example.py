"""Random hits on empty planes: the shapes of a batch; `porting.data.events` makes tracks that can be learnt.

B = events, P = planes (3), H and W = height and width in pixels.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch

from .config import NUM_PLANES

__all__ = ["example_batch"]


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
