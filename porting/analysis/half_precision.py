"""Judge whether float16 can hold a training step's measured values: too large, too small, and the scale to use.

Preflights and proofs in half precision use it. float16 ends at 65,504, and below 6e-8 it has only zero. Gradients are
small: the loss, and with it each gradient, is multiplied by a loss scaling, a power of two, and the optimizer divides
by it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence

from ..diagnostics import Finding, join_names

__all__ = ["LARGEST_HALF", "SMALLEST_HALF", "MeasuredModule", "advise_loss_scaling", "iter_range_faults"]

LARGEST_HALF = 65504.0
"""The largest number of float16."""

SMALLEST_HALF = 2.0**-24
"""The smallest number of float16 above zero, 5.96e-8."""

# gradients vary from batch to batch: so many times larger than here they may become
_HEADROOM = 16.0
_LARGEST_SCALE = 2.0**24
_MOST_NAMES = 4
_FEW = 0.01


@dataclass(frozen=True)
class MeasuredModule:
    """The magnitudes of one module's outputs and of their gradients on a real batch, in float32.

    `largest_value` and `largest_gradient` are 0.0 where there are none, and infinite where a value is not finite.
    `lost_gradients` is the share of the gradients other than zero that float16 rounds to zero, `lost_values` that of
    the outputs; `overflowing_values` and `overflowing_gradients` are the shares of those beyond its end.
    """

    name: str
    largest_value: float
    largest_gradient: float = 0.0
    smallest_gradient: float = 0.0
    lost_gradients: float = 0.0
    smallest_value: float = 0.0
    lost_values: float = 0.0
    overflowing_values: float = 0.0
    overflowing_gradients: float = 0.0


def advise_loss_scaling(modules: Sequence[MeasuredModule]) -> Optional[float]:
    """Return the largest power of two by which all gradients may be multiplied; None where nothing was measured.

    >>> advise_loss_scaling([MeasuredModule("layer", 1.0, largest_gradient=0.001)])
    2097152.0
    """
    gradients = [m.largest_gradient for m in modules if 0 < m.largest_gradient < math.inf]
    if not gradients:
        return None
    return max(1.0, min(_LARGEST_SCALE, 2.0 ** math.floor(math.log2(LARGEST_HALF / _HEADROOM / max(gradients)))))


def iter_range_faults(modules: Sequence[MeasuredModule]) -> Iterator[Finding]:
    """Yield P020 for modules whose values or gradients float16 cannot hold, and P021 for gradients that it loses."""
    for what, largest in (("output", "largest_value"), ("gradient", "largest_gradient")):
        beyond = [module for module in modules if getattr(module, largest) > LARGEST_HALF]
        if beyond:
            worst = max(beyond, key=lambda module: float(getattr(module, largest)))
            yield Finding(
                "P020",
                message=f"the {what} of `{worst.name}` reaches {getattr(worst, largest):,.4g}, and "
                "float16 ends at 65,504",
                notes=_tell_others(beyond, worst),
                help=(
                    "normalise before this module, or scale its result: `x / 64`",
                    "keep the module in float32: `PortOptions(precision='mixed')` and `.float()` around it",
                ),
            )
    losing = [module for module in modules if module.lost_gradients > _FEW]
    if losing:
        worst = max(losing, key=lambda module: module.lost_gradients)
        scale = advise_loss_scaling(modules)
        yield Finding(
            "P021",
            message=f"float16 rounds {worst.lost_gradients:.0%} of the gradients at `{worst.name}` to zero: they are "
            f"as small as {worst.smallest_gradient:.1e}, and float16 ends at 6e-8",
            notes=_tell_others(losing, worst),
            help=(
                f"multiply the loss before it is differentiated: `loss_scaling={scale:,.0f}` in the device's optimizer"
                if scale is not None and scale > 1
                else "train these modules in float32",
                "after each change look again: `porting.check(model, loss, batch, options=options)`",
            ),
        )


def _tell_others(found: Sequence[MeasuredModule], worst: MeasuredModule) -> List[str]:
    names = [module.name for module in found if module is not worst]
    return [f"so do those of {join_names(names, most=_MOST_NAMES)}"] if names else []
