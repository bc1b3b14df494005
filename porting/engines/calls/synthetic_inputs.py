"""Inputs that the device makes up, for measuring it without the host: the host's values are not looked at."""

from __future__ import annotations

from typing import List, Sequence

import torch

__all__ = ["synthetic_inputs"]


def synthetic_inputs(like: Sequence[torch.Tensor], kind: str) -> List[torch.Tensor]:
    """Return tensors of the same shapes and types; `kind` is "zeros", "normal" or "uniform" (between -1 and 1).

    Integers and bools are zero, which is a valid index. The same numbers come each time.
    """
    generator = torch.Generator().manual_seed(0)
    return [_synthetic(tensor, kind, generator) for tensor in like]


def _synthetic(like: torch.Tensor, kind: str, generator: torch.Generator) -> torch.Tensor:
    made = torch.zeros(like.shape, dtype=like.dtype)
    if not made.is_floating_point() or kind == "zeros":
        return made
    return made.normal_(generator=generator) if kind == "normal" else made.uniform_(-1.0, 1.0, generator=generator)
