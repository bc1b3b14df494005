"""This module compares the losses of both sides' first steps, and decides whether a difference is mere rounding.

Training can magnify the last bit of a sum without bound (a ReLU that opens or not), and one eager run shows only one
example of it. So eager training is run again, in float64 and from weights that differ in their last bits.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from porting.comparison import relative_differences
from porting.comparison.noise import Noise, list_furthest

__all__ = ["TOLERANCES", "Parity", "compare_losses", "measure_weight_difference"]

TOLERANCES = {"float32": 1e-5, "mixed": 2e-2, "float16": 2e-2, "bfloat16": 5e-2}
"""The largest relative difference of losses that passes, by the port's precision; the eager side has float32."""

# of the largest loss: what a loss is divided by at least, so that one that has been learnt away does not count
_FLOORS = {"float32": 1e-3, "mixed": 1.0, "float16": 1.0, "bfloat16": 1.0}
# beyond this float64 says nothing of the step: it draws other random numbers, or rounding leads as far as training does
_MAX_ROUNDING = 1e-2
# of how many losses, from the first on, float64 has to say something
_FEWEST_LOSSES = 5
# how much further from float64 than eager the port may be over all of these losses, and up to each single one
_NOISE_MARGIN, _MARGIN_OF_EACH = 2.0, 10.0
# runs of eager, besides the first, that tell how far rounding goes
_NUM_ROUNDED = 4


@dataclass(frozen=True)
class Parity:
    """Losses of both sides over the same steps from the same start.

    `verdict` is "pass"; "rounding" when the difference is above the tolerance, but the ported losses are not further
    from those of a float64 run than twice what eager ones are; or "fail". `difference` is the largest relative one,
    None when a loss was not finite, and so is that loss in a file. `reference_eager` and `reference_ported` are the
    distances from float64, that of eager the largest of its runs. They are those of the first `num_referenced` losses,
    if rounding has led eager PyTorch itself too far from float64 after those. In none of all losses is the port more
    than ten times as far.
    """

    verdict: str
    tolerance: float
    difference: Optional[float]
    num_steps: int
    eager_losses: Tuple[Optional[float], ...]
    ported_losses: Tuple[Optional[float], ...]
    reference_eager: Optional[float] = None
    reference_ported: Optional[float] = None
    weight_difference: Optional[float] = None
    num_referenced: Optional[int] = None


def compare_losses(
    eager: Sequence[float],
    ported: Sequence[float],
    *,
    precision: str,
    num_steps: int,
    reference: Callable[[], List[float]],
    rounded: Callable[[int], List[float]],
    weight_difference: Optional[float] = None,
) -> Parity:
    """Compare the losses of both sides; in float32, further runs decide whether a large difference is rounding.

    `reference` returns the losses of a float64 run, and `rounded` those of eager runs with other rounding, by number.
    """
    tolerance, floor = TOLERANCES[precision], _FLOORS[precision]
    difference = _find_difference(eager, ported, floor)
    verdict = "pass" if difference is not None and difference <= tolerance else "fail"
    found = _Reference(0, None, None)
    if verdict == "fail" and precision == "float32" and difference is not None:
        exact, runs = reference(), [list(eager)]
        found = _compare_with_float64(exact, runs, ported)
        for number in range(_NUM_ROUNDED):
            if found.explains:
                break
            runs.append(rounded(number))
            found = _compare_with_float64(exact, runs, ported)
        verdict = "rounding" if found.explains else "fail"
    return Parity(
        verdict=verdict,
        tolerance=tolerance,
        difference=difference,
        num_steps=num_steps,
        eager_losses=tuple(eager),
        ported_losses=tuple(ported),
        reference_eager=found.eager_error,
        reference_ported=found.ported_error,
        weight_difference=weight_difference,
        num_referenced=found.num_referenced or None,
    )


def measure_weight_difference(eager: torch.nn.Module, ported: torch.nn.Module) -> Optional[float]:
    """Return how far the weights of two modules are apart, over the size of the first's; None where not finite.

    >>> measure_weight_difference(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)) > 0
    True
    """
    apart, size = 0.0, 0.0
    with torch.no_grad():
        for one, other in zip(eager.parameters(), ported.parameters()):
            apart += float((one.double() - other.double()).square().sum())
            size += float(one.double().square().sum())
    value = (apart / max(size, 1e-300)) ** 0.5
    return value if value < float("inf") else None


class _Reference(NamedTuple):
    """How far both sides are from float64 in their first losses; `eager_error` is the largest of several runs.

    `explains` tells whether rounding may be all that tells the sides apart.
    """

    num_referenced: int
    eager_error: Optional[float]
    ported_error: Optional[float]
    explains: bool = False


def _compare_with_float64(
    exact: Sequence[float], runs: Sequence[Sequence[float]], ported: Sequence[float]
) -> _Reference:
    """Compare the losses up to the first of which float64 says nothing.

    If those are too few, the errors are of all losses, and explain nothing.
    """
    floor = _FLOORS["float32"]
    # what is not finite explains nothing
    furthest = list_furthest(filter(None, (_find_differences(exact, run, floor) for run in runs)))
    errors = _find_differences(exact, ported, floor)
    if not furthest or errors is None:
        return _Reference(0, max(furthest, default=None), None)
    num_losses = bisect.bisect_right(furthest, _MAX_ROUNDING)
    if num_losses < min(_FEWEST_LOSSES, len(exact)):
        return _Reference(0, furthest[-1], max(errors))
    # a port that is wrong may be so for a while before rounding has led eager as far, and afterwards
    each = (Noise(one, _MARGIN_OF_EACH, TOLERANCES["float32"]) for one in furthest)
    keeps_pace = all(noise.explains(error) for error, noise in zip(errors, each))
    noise, error = Noise(furthest[num_losses - 1], _NOISE_MARGIN), max(errors[:num_losses])
    return _Reference(num_losses, noise.furthest, error, keeps_pace and noise.explains(error))


def _find_difference(expected: Sequence[float], actual: Sequence[float], floor: float) -> Optional[float]:
    """Return the largest difference relative to the expected loss; None where losses cannot be compared."""
    differences = _find_differences(expected, actual, floor)
    return None if differences is None else max(differences, default=0.0)


def _find_differences(expected: Sequence[float], actual: Sequence[float], floor: float) -> Optional[List[float]]:
    """Return the differences relative to the expected losses; None where losses cannot be compared."""
    if len(expected) != len(actual):
        return None
    smallest = floor * max(map(abs, expected), default=0.0)
    found = relative_differences(expected, actual, scale_of=lambda one, _other: max(abs(one), smallest))
    return found if all(map(math.isfinite, found)) else None
