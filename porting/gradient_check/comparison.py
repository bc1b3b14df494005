"""Gradients that autograd gave, element by element or along directions, against slopes by differences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Optional

import torch

from porting.diagnostics import PortingError
from porting.gradient_check.slopes import Slopes, name_element, refuse_kink

__all__ = ["Gradient", "GradientComparison", "Tolerances"]

# Up to so many elements each one is moved; of a larger tensor all are, along random signs.
_FEW_ELEMENTS = 256
_NUM_DIRECTIONS = 4


class _Tolerance(NamedTuple):
    """How far an element of a type may be off: relative to itself, to the largest of its tensor, and of all tensors.

    `of_direction` is for a slope along a random direction, beside the length of the gradient.
    """

    relative: float
    of_largest: float
    of_all: float
    of_direction: float


_TOLERANCES = {
    torch.float64: _Tolerance(1e-4, 1e-6, 1e-9, 1e-6),
    torch.float32: _Tolerance(1e-3, 1e-4, 1e-5, 2e-5),
    torch.float16: _Tolerance(1e-2, 1e-2, 5e-3, 5e-3),
    torch.bfloat16: _Tolerance(5e-2, 5e-2, 3e-2, 3e-2),
}
_SMALLEST_ABSOLUTE = 1e-9


@dataclass(frozen=True)
class Tolerances:
    """What is allowed: by the types of gradients, of which `largest` is the largest element; or as the user says."""

    largest: float
    atol: Optional[float]
    rtol: Optional[float]

    def rate(self, own: float, numerical: float, of_tensor: float, dtype: torch.dtype) -> float:
        """Return the difference of an element as a part of what is allowed, where `of_tensor` is the largest one."""
        by_type = _TOLERANCES[dtype]
        relative = by_type.relative if self.rtol is None else self.rtol
        absolute = by_type.of_largest * of_tensor + by_type.of_all * self.largest + _SMALLEST_ABSOLUTE
        return _rate_difference(
            abs(own - numerical), (absolute if self.atol is None else self.atol) + relative * abs(numerical)
        )

    def rate_direction(self, own: float, numerical: float, length: float, num: int, dtype: torch.dtype) -> float:
        """Return the difference of slopes along a direction of `num` elements, for a gradient of some length."""
        by_type = _TOLERANCES[dtype]
        relative = by_type.of_direction if self.rtol is None else self.rtol
        absolute = by_type.of_all * self.largest * math.sqrt(num) + _SMALLEST_ABSOLUTE
        # many elements nearly take each other away, and what they are off by does not
        absolute = (absolute if self.atol is None else self.atol * math.sqrt(num)) / math.sqrt(num)
        return _rate_difference(
            abs(own - numerical), absolute + relative * max(length / math.sqrt(num), abs(numerical))
        )


def _rate_difference(difference: float, allowed: float) -> float:
    if not difference:
        return 0.0
    return difference / allowed if allowed and math.isfinite(difference) else math.inf


class GradientComparison:
    """Compares the gradients of one tensor after the other, and counts."""

    def __init__(self, slopes: Slopes, tolerances: Tolerances, *, refuses_kinks: bool) -> None:
        """Compare nothing yet; with `refuses_kinks` they are looked for even where the two agree."""
        self._slopes, self._tolerances, self._refuses_kinks = slopes, tolerances, refuses_kinks
        self._draws = torch.Generator().manual_seed(1)
        self.num_elements = self.num_directions = 0
        self.worst = 0.0

    def compare(self, name: str, tensor: torch.Tensor, gradient: Gradient) -> None:
        """Compare the gradient by `tensor`, whose values are moved and put back."""
        if tensor.numel() <= _FEW_ELEMENTS:
            self._compare_elements(name, tensor, gradient)
        else:
            self._compare_directions(name, tensor, gradient)

    def _compare_elements(self, name: str, tensor: torch.Tensor, gradient: Gradient) -> None:
        numerical = [self._slopes.measure(tensor, index) for index in range(tensor.numel())]
        largest = max(map(abs, numerical), default=0.0)
        for index, value in enumerate(numerical):
            if self._refuses_kinks:
                refuse_kink(self._slopes, tensor, index, name)
            ratio = self._tolerances.rate(float(gradient.values[index]), value, largest, gradient.dtype)
            if ratio > 1.0:
                self._fail(name, tensor, gradient, index, value)
            self.worst = max(self.worst, ratio)
        self.num_elements += tensor.numel()

    def _compare_directions(self, name: str, tensor: torch.Tensor, gradient: Gradient) -> None:
        for _number in range(_NUM_DIRECTIONS):
            signs = torch.randint(0, 2, tensor.shape, generator=self._draws).to(tensor.dtype).mul_(2.0).sub_(1.0)
            if self._refuses_kinks:
                refuse_kink(self._slopes, tensor, signs / math.sqrt(tensor.numel()), name)
            ratio = self._rate_direction(tensor, gradient, signs)
            if ratio > 1.0:
                self._fail_in_direction(name, tensor, gradient, signs, ratio)
            self.worst = max(self.worst, ratio)
            self.num_directions += 1

    def _rate_direction(self, tensor: torch.Tensor, gradient: Gradient, signs: torch.Tensor) -> float:
        """Return the difference along a direction as a part of what is allowed; zeros of `signs` are not moved."""
        flat = signs.reshape(-1).double()
        num = int((flat != 0).sum())
        numerical = self._slopes.measure(tensor, signs / math.sqrt(num))
        own = float((gradient.values * flat).sum()) / math.sqrt(num)
        length = float((gradient.values * flat).norm())
        return self._tolerances.rate_direction(own, numerical, length, num, gradient.dtype)

    def _fail_in_direction(
        self, name: str, tensor: torch.Tensor, gradient: Gradient, signs: torch.Tensor, ratio: float
    ) -> NoReturn:
        """Search for the element that is off most, half by half, and raise what is to be said of it."""
        low, high = 0, tensor.numel()
        while high - low > 1:
            middle = (low + high) // 2
            ratios = []
            for start, end in ((low, middle), (middle, high)):
                part = torch.zeros_like(signs)
                part.view(-1)[start:end] = signs.view(-1)[start:end]
                ratios.append(self._rate_direction(tensor, gradient, part))
            low, high = (low, middle) if ratios[0] >= ratios[1] else (middle, high)
        value = self._slopes.measure(tensor, low)
        if self._tolerances.rate(float(gradient.values[low]), value, abs(value), gradient.dtype) > 1.0:
            self._fail(name, tensor, gradient, low, value)
        refuse_kink(self._slopes, tensor, signs / math.sqrt(tensor.numel()), name)
        raise PortingError.at_caller(
            "V005",
            message=f"the gradient by {name} is not the derivative",
            notes=f"along a random direction it is off by {ratio:,.3g} times what is allowed",
            help=_REMEDY,
        )

    def _fail(self, name: str, tensor: torch.Tensor, gradient: Gradient, index: int, numerical: float) -> NoReturn:
        refuse_kink(self._slopes, tensor, index, name)
        given = f"{float(gradient.values[index]):.6g}" if gradient.is_there else "no gradient"
        raise PortingError.at_caller(
            "V005",
            message=f"the gradient by {name} is not the derivative",
            notes=f"at element {name_element(tensor, index)} the backward pass gives {given}, and differences give "
            f"{numerical:.6g}",
            help=_REMEDY,
        )


_REMEDY = "look at `backward`: a factor, a sign, a reduction over the wrong axis, or a value that was detached"


class Gradient(NamedTuple):
    """A gradient in float64, flat; the type that it was computed in; and whether autograd gave one at all."""

    values: torch.Tensor
    dtype: torch.dtype
    is_there: bool
