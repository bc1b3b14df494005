"""Measure the range of a tensor: its finite values, and how many are not.

In half precision it tells the smallest value that is not zero, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional, Tuple

import torch

__all__ = ["ValueRange", "is_not_finite", "measure_range"]

_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class ValueRange:
    """What a tensor called `name` held.

    `lowest` and `highest` are those of its finite values, None where it has none. `smallest` is the smallest magnitude
    above zero, which is looked for in half precision only. `dtype` is written as torch does, without `torch.`.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    lowest: Optional[float] = None
    highest: Optional[float] = None
    smallest: Optional[float] = None
    num_values: int = 0
    num_nan: int = 0
    num_infinite: int = 0

    @property
    def is_finite(self) -> bool:
        """Whether every value is a number.

        >>> measure_range("x", torch.tensor([1.0, float("nan")])).is_finite
        False
        """
        return not self.num_nan and not self.num_infinite

    def __str__(self) -> str:
        """Say it in a line.

        >>> print(measure_range("x", torch.tensor([1.0, -2.0])))
        x: float32[2] from -2 to 1, finite
        """
        text = f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"
        if self.lowest is not None and self.highest is not None:
            is_one = self.lowest == self.highest
            text += f" all {self.lowest:g}" if is_one else f" from {self.lowest:g} to {self.highest:g}"
        parts = [f"{self.num_nan} of {self.num_values} NaN"] if self.num_nan else []
        parts += [f"{self.num_infinite} of {self.num_values} infinite"] if self.num_infinite else []
        parts += ["finite"] if self.is_finite else []
        parts += [f"smallest above zero {self.smallest:g}"] if self.smallest is not None else []
        return f"{text}, {', '.join(parts)}"

    def to_dict(self) -> Dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "shape": list(self.shape)}


def is_not_finite(value: object) -> bool:
    """Tell whether `value` is a tensor that can hold NaN or infinity, and does."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    with torch.no_grad():
        return value.numel() > 0 and not bool(torch.isfinite(value).all())


def measure_range(name: str, tensor: torch.Tensor) -> ValueRange:
    """Measure a real tensor; it is not changed, and of a complex one the real and imaginary parts are measured."""
    with torch.no_grad():
        shape, dtype = tuple(tensor.shape), str(tensor.dtype).replace("torch.", "")
        values = tensor.detach()
        values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
        if not values.is_floating_point():
            values = values.to(torch.int64)
        finite = torch.isfinite(values)
        num_nan = int(torch.isnan(values).sum())
        num_infinite = values.numel() - int(finite.sum()) - num_nan
        numbers = values[finite] if num_nan or num_infinite else values
        lowest = highest = smallest = None
        if numbers.numel():
            lowest, highest = float(numbers.min()), float(numbers.max())
            magnitudes = numbers[numbers != 0].abs() if tensor.dtype in _HALVES else None
            smallest = float(magnitudes.min()) if magnitudes is not None and magnitudes.numel() else None
    return ValueRange(name, dtype, shape, lowest, highest, smallest, values.numel(), num_nan, num_infinite)
