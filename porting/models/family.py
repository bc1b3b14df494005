"""What every family of models has: the contract that benchmarks, recipes and tests rely on."""

from __future__ import annotations

from typing import Any, Mapping, Protocol, Tuple

import torch
from torch import nn

__all__ = ["Family"]


class Family(Protocol):
    """A package of models with one idea and several sizes.

    `VARIANTS` has a frozen dataclass for each size, `DEFAULT` is the name of one of them. The model made of a
    configuration takes all tensors of `example_batch` but the last, and `loss` what the model returns and the last.
    """

    DEFAULT: str
    VARIANTS: Mapping[str, Any]

    def build(self, variant: str, **changes: Any) -> nn.Module:
        """Make the model of a variant, with the fields of its configuration in `changes` replaced."""

    def example_batch(self, config: Any, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
        """Make random inputs and labels of the shapes that a configuration's model takes."""

    def loss(self, outputs: Any, labels: Any) -> torch.Tensor:
        """Return a number that is small when the outputs are right."""
