"""Slopes of a function by differences: along an element or a direction of a tensor, and where there is none."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from porting.diagnostics import PortingError
from porting.structure import flatten_tensors

__all__ = [
    "Direction",
    "Gradients",
    "Slopes",
    "complete_gradients",
    "find_kink",
    "list_outputs",
    "name_element",
    "refuse_kink",
    "weigh_outputs",
]

Gradients = Union[None, torch.Tensor, Sequence[Optional[torch.Tensor]]]
"""The gradients by what a function returns: a tensor, several, or None where they are drawn."""

Direction = Union[int, torch.Tensor]
"""The index of an element in a flat tensor, or a tensor of its shape."""

# one-sided slopes nearer to each other than this are those of a smooth function
_SMOOTH = 1e-3
_NOISE_UNITS = 16.0


class Slopes:
    """The slopes of a number that is computed from tensors, which are moved in place and put back.

    Moving an element by `eps` has to change it: PortingError V007 otherwise, and where the number is not finite.
    """

    def __init__(self, evaluate: Callable[[], float], eps: float) -> None:
        """Compute nothing yet."""
        self._evaluate = evaluate
        self.eps = eps

    def measure(self, tensor: torch.Tensor, direction: Direction) -> float:
        """Return the slope along `direction`, from a step to either side."""
        with _keep_values(tensor):
            ahead, forwards = self._evaluate_at(tensor, direction, self.eps)
            behind, backwards = self._evaluate_at(tensor, direction, -self.eps)
        return (ahead - behind) / (forwards - backwards)

    def measure_sides(self, tensor: torch.Tensor, direction: Direction, part: float) -> Tuple[float, float, float]:
        """Return the slopes ahead and behind, by steps of a `part` of `eps`, and how much of them may be rounding."""
        with _keep_values(tensor):
            here = self._evaluate()
            ahead, forwards = self._evaluate_at(tensor, direction, self.eps * part)
            behind, backwards = self._evaluate_at(tensor, direction, -self.eps * part)
        noise = _NOISE_UNITS * torch.finfo(tensor.dtype).eps * max(abs(here), abs(ahead), abs(behind))
        return (ahead - here) / forwards, (here - behind) / -backwards, noise / min(forwards, -backwards)

    def _evaluate_at(self, tensor: torch.Tensor, direction: Direction, step: float) -> Tuple[float, float]:
        """Return the number a step away, and how long the step was after rounding."""
        with _keep_values(tensor):
            made = _move_tensor(tensor, direction, step)
            value = self._evaluate() if made else 0.0
        if not made:
            raise PortingError.at_caller(
                "V007",
                message=f"a step of {step:g} is lost in the rounding of {tensor.dtype} numbers",
                help="pass a larger `eps`, or numbers in float64",
            )
        if not math.isfinite(value):
            raise PortingError.at_caller(
                "V007",
                message="the function is not finite near the point at which it is checked",
                help="pass other inputs, or a smaller `eps`",
            )
        return value, made


def _move_tensor(tensor: torch.Tensor, direction: Direction, step: float) -> float:
    """Move a tensor in place, and return by how much the rounding of its type has let it."""
    with torch.no_grad():
        if isinstance(direction, torch.Tensor):
            tensor.add_(direction, alpha=step)
            return step
        place = _locate_element(tensor, direction)
        before = float(tensor[place])
        tensor[place] += step
        return float(tensor[place]) - before


@contextmanager
def _keep_values(tensor: torch.Tensor) -> Iterator[None]:
    before = tensor.detach().clone()
    try:
        yield
    finally:
        with torch.no_grad():
            tensor.copy_(before)


def find_kink(slopes: Slopes, tensor: torch.Tensor, direction: Direction) -> Optional[Tuple[float, float]]:
    """Return the slopes behind and ahead if the function has a kink or a jump there, else None.

    The two come nearer as the step shrinks where the function is smooth: by half for half the step.
    """
    gaps: List[float] = []
    first: Optional[Tuple[float, float]] = None
    for part in (1.0, 0.5, 0.25):
        ahead, behind, noise = slopes.measure_sides(tensor, direction, part)
        first = first or (behind, ahead)
        gap = abs(ahead - behind)
        if gap <= noise + _SMOOTH * max(abs(ahead), abs(behind)) and not gaps:
            return None
        gaps.append(gap)
    is_smooth = all(abs(gap - gaps[0] * part) <= 0.1 * gaps[0] for gap, part in zip(gaps[1:], (0.5, 0.25)))
    return None if is_smooth else first


def refuse_kink(slopes: Slopes, tensor: torch.Tensor, direction: Direction, name: str) -> None:
    """Raise PortingError V006 if the function has a kink there."""
    found = find_kink(slopes, tensor, direction)
    if found is None:
        return
    where = f"element {name_element(tensor, direction)}" if isinstance(direction, int) else "a random direction"
    raise PortingError.at_caller(
        "V006",
        message=f"the function has a kink or a jump within {slopes.eps:g} of {name}",
        notes=f"along {where} its slope is {found[0]:.6g} on one side and {found[1]:.6g} on the other",
        help="check at another point, or with a smaller `eps`",
    )


def name_element(tensor: torch.Tensor, index: int) -> str:
    """Write the place of an element of a flat tensor as an index of the tensor itself.

    >>> name_element(torch.zeros(2, 3), 4)
    '(1, 1)'
    """
    place = _locate_element(tensor, index)
    return f"({', '.join(map(str, place))}{',' if len(place) == 1 else ''})"


def _locate_element(tensor: torch.Tensor, index: int) -> Tuple[int, ...]:
    place = []
    for size in reversed(tensor.shape):
        place.append(index % size)
        index //= size
    return tuple(reversed(place))


# -- the number that is computed ---------------------------------------------------------------------------------------


def list_outputs(returned: object) -> List[torch.Tensor]:
    """List the floating-point tensors of what a function returned; PortingError V007 if there are none."""
    found = [tensor for tensor in flatten_tensors(returned) if tensor.is_floating_point()]
    if not found:
        raise PortingError.at_caller(
            "V007",
            message="the function returns no floating-point tensor",
            help="return the tensors whose gradients are to be checked",
        )
    return found


def complete_gradients(given: Gradients, outputs: Sequence[torch.Tensor]) -> List[Optional[torch.Tensor]]:
    """Return a gradient for each output, drawn if none is given; PortingError V007 for one of another shape."""
    if given is None:
        draws = torch.Generator().manual_seed(0)
        # away from zero, so that every element counts
        return [torch.rand(output.shape, generator=draws) + 0.5 for output in outputs]
    gradients: List[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    shapes = [None if gradient is None else tuple(gradient.shape) for gradient in gradients]
    wanted = [tuple(output.shape) for output in outputs]
    if len(shapes) != len(wanted) or any(one not in (None, other) for one, other in zip(shapes, wanted)):
        raise PortingError.at_caller(
            "V007",
            message=f"the gradients have the shapes {shapes}, and the function returns {wanted}",
            help="pass a gradient for each tensor that is returned, None for one without",
        )
    return gradients


def weigh_outputs(outputs: Sequence[torch.Tensor], gradients: Sequence[Optional[torch.Tensor]]) -> float:
    """Return the sum of all outputs, each element times its gradient, added up in float64."""
    pairs = zip(outputs, gradients)
    return sum(float((out.detach().double() * grad.double()).sum()) for out, grad in pairs if grad is not None)
