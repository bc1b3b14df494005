"""What a program may ask of the device, operator by operator: one call of each, by the public name of the operator.

A case is called with float tensors whose values suit the operator, and gives a tensor or several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Tuple

import torch


@dataclass(frozen=True)
class Case:
    """A call of an operator: `call` gets tensors of `shapes` with values from `low` to `high`.

    `integers` are given after them as they are. `has_gradient` says that training reaches the first tensor through the
    call, `in_half` that float16 has enough digits to compare.
    """

    call: Callable[..., Any]
    shapes: Tuple[Tuple[int, ...], ...] = ((3, 4),)
    low: float = -1.5
    high: float = 1.5
    integers: Tuple[torch.Tensor, ...] = ()
    has_gradient: bool = True
    in_half: bool = True

    def floats(self, dtype: torch.dtype = torch.float32) -> Tuple[torch.Tensor, ...]:
        """Draw the same tensors each time."""
        generator = torch.Generator().manual_seed(7)
        drawn = (torch.rand(shape, generator=generator) for shape in self.shapes)
        return tuple((self.low + (self.high - self.low) * tensor).to(dtype) for tensor in drawn)


def cases(calls: Dict[str, Callable[..., Any]], **settings: Any) -> Dict[str, Case]:
    """Make cases of the same kind, by name."""
    return {name: Case(call, **settings) for name, call in calls.items()}
