"""Compare the losses of both sides' first steps, in float64 where rounding is the question.

Training can magnify the last bit of a sum without bound (a ReLU that opens or not), and one run of eager PyTorch is
only one example of how far. So it is run some more times from weights that differ in their last bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple

import torch

from porting.comparison import is_rounding, largest_difference

__all__ = ["TOLERANCES", "Parity", "compare_losses", "measure_weight_difference"]

TOLERANCES = {"float32": 1e-5, "mixed": 2e-2, "float16": 2e-2, "bfloat16": 5e-2}
"""The largest relative difference of losses that passes, by the port's precision; the eager side has float32."""

# of the largest loss: what a loss is divided by at least, so that one that has been learnt away does not count
_FLOORS = {"float32": 1e-3, "mixed": 1.0, "float16": 1.0, "bfloat16": 1.0}
# beyond this float64 differs by more than rounding, as it does where random numbers are drawn
_MAX_ROUNDING = 1e-2
# how much further from float64 than eager the port may be
_NOISE_MARGIN = 2.0
# runs of eager, besides the first, that tell how far rounding goes
_NUM_ROUNDED = 4


@dataclass(frozen=True)
class Parity:
    """Losses of both sides over the same steps from the same start.

    `verdict` is "pass"; "rounding" when the difference is above the tolerance, but the ported losses are not further
    from those of a float64 run than twice what eager ones are; or "fail". `difference` is the largest relative one,
    None when a loss was not finite. `reference_eager` and `reference_ported` are the distances from float64, that of
    eager the largest of its runs.
    """

    verdict: str
    tolerance: float
    difference: Optional[float]
    num_steps: int
    eager_losses: Tuple[float, ...]
    ported_losses: Tuple[float, ...]
    reference_eager: Optional[float] = None
    reference_ported: Optional[float] = None
    weight_difference: Optional[float] = None


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
    """Compare losses of both sides, in float32 with those of further runs where they are too far apart.

    `reference` gives the losses of a float64 run, `rounded` those of eager runs that are rounded otherwise, by number.
    """
    tolerance, floor = TOLERANCES[precision], _FLOORS[precision]
    difference = _find_difference(eager, ported, floor)
    verdict = "pass" if difference is not None and difference <= tolerance else "fail"
    eager_error = ported_error = None
    if verdict == "fail" and precision == "float32" and difference is not None:
        exact = reference()
        eager_error, ported_error = _find_difference(exact, eager, floor), _find_difference(exact, ported, floor)
        for number in range(_NUM_ROUNDED):
            if _is_rounding(eager_error, ported_error):
                break
            # what is not finite explains nothing
            eager_error = max(eager_error or 0.0, _find_difference(exact, rounded(number), floor) or 0.0)
        verdict = "rounding" if _is_rounding(eager_error, ported_error) else "fail"
    return Parity(
        verdict=verdict,
        tolerance=tolerance,
        difference=difference,
        num_steps=num_steps,
        eager_losses=tuple(eager),
        ported_losses=tuple(ported),
        reference_eager=eager_error,
        reference_ported=ported_error,
        weight_difference=weight_difference,
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


def _find_difference(expected: Sequence[float], actual: Sequence[float], floor: float) -> Optional[float]:
    """Return the largest difference relative to the expected loss; None where losses cannot be compared."""
    if len(expected) != len(actual):
        return None
    smallest = floor * max(map(abs, expected))
    worst, _place = largest_difference(expected, actual, scale_of=lambda one, _other: max(abs(one), smallest))
    return worst if worst < float("inf") else None


def _is_rounding(eager_error: Optional[float], ported_error: Optional[float]) -> bool:
    if eager_error is None or ported_error is None:
        return False
    return eager_error <= _MAX_ROUNDING and is_rounding(ported_error, noise=eager_error, margin=_NOISE_MARGIN)
