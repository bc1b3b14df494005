"""Predict what a compiled program takes from what replay takes for the same kinds of operators.

Only products and convolutions, by other kernels, the update and the rest, which the compiler fuses, can become faster.
LSTMs that a program writes out become slower.
"""

from __future__ import annotations

from typing import Any, Dict

import torch

from ...capture.operator_schema import name_arguments
from ...support.interleaved import Interval
from ..calls.executable import Choice
from ..compiled.recurrent_cells import MOST_CELLS, count_cells
from ..contract.step_cost import StepCost
from .inductor.optional.convolution_kernels import find_algorithm

__all__ = ["predict_seconds"]

# Another library multiplies small matrices at most so much faster, and none faster than the best that was seen.
_LEAST_SHARE_OF_PRODUCTS = 0.4
# Winograd's algorithm needs 4 of 9 multiplications; what other kernels gain with each convolution is found out by
# measuring where programs are compiled.
_LEAST_SHARE_OF_CONVOLUTIONS, _USUAL_SHARE_OF_CONVOLUTIONS = 0.45, 0.7
# An LSTM that is written out reads its weights for each cell, and multiplies smaller matrices than torch's kernel.
_LEAST_SHARE_OF_CELLS, _USUAL_SHARE_OF_CELLS = 1.2, 1.35
# Fused loops without the way from operator to operator; what remains at least, and usually.
_LEAST_SHARE_OF_REST, _USUAL_SHARE_OF_REST = 0.15, 0.5
_LEAST_SHARE_OF_UPDATE, _USUAL_SHARE_OF_UPDATE = 0.5, 0.75
# The start of a run of a program, by the clock, on a usual processor.
_RUN_SECONDS = 8e-6
# What is expected may be wrong by so much.
_DOUBT = 1.2
# Beside the start of torch's kernel for an LSTM so many cells count for little.
_FEW_CELLS = 15
# channels of the narrowest vectors that a compiled program convolves with
_FEWEST_LANES = 8


def predict_seconds(choice: Choice, cost: StepCost) -> Interval:
    """Return what a call of `cost` usually takes as a program, with the least that no program gets below.

    >>> found = predict_seconds(Choice("aot"), StepCost(products=0.0, library=0.9, update=0.0, rest=0.1))
    >>> round(found.median, 3), round(found.low, 3)
    (0.95, 0.915)
    """
    convolutions, cells = cost.convolutions * _find_share_with_choice(cost), cost.cells if _writes_out(cost) else 0.0
    library = cost.library + cost.convolutions - convolutions + cost.cells - cells
    at_peak = cost.product_flops / cost.peak_flops if cost.peak_flops else 0.0
    products = min(cost.products, max(at_peak, cost.products * _LEAST_SHARE_OF_PRODUCTS))
    least = (
        library
        + convolutions * _LEAST_SHARE_OF_CONVOLUTIONS
        + cells * _LEAST_SHARE_OF_CELLS
        + products
        + cost.update * _LEAST_SHARE_OF_UPDATE
        + cost.rest * _LEAST_SHARE_OF_REST
    )
    usual = (
        library
        + convolutions * _USUAL_SHARE_OF_CONVOLUTIONS
        + cells * _USUAL_SHARE_OF_CELLS
        + (cost.products + products) / 2
        + cost.update * _USUAL_SHARE_OF_UPDATE
        + cost.rest * _USUAL_SHARE_OF_REST
    )
    # of equally good ones, what is done in fewer runs
    usual += cost.num_iterations / choice.steps_per_run * _RUN_SECONDS
    return Interval(usual, least, max(cost.seconds, usual) * _DOUBT)


def _writes_out(cost: StepCost) -> bool:
    """Tell whether a program writes out the cells of LSTMs, as far as that costs time."""
    return cost.graph is None or _FEW_CELLS < count_cells(cost.graph) <= MOST_CELLS


def _find_share_with_choice(cost: StepCost) -> float:
    """Return which share of the operations of all convolutions has a choice of kernels in a compiled program."""
    flops = cost.convolution_flops
    return sum(flops[node] for node in flops if _has_choice(node)) / sum(flops.values()) if flops else 1.0


def _has_choice(node: torch.fx.Node) -> bool:
    named = name_arguments(node.target, node.args, node.kwargs)
    images, filters = (named[name].meta["val"] for name in ("input", "weight"))
    how: Dict[str, Any] = {name: named.get(name) for name in ("stride", "padding", "dilation")}
    is_image = images.dim() == filters.dim() == 4 and images.dtype == torch.float32 and not named.get("transposed")
    if not is_image or isinstance(how["padding"], str):
        return False
    return bool(find_algorithm(images.shape, filters.shape, groups=named["groups"], lanes=_FEWEST_LANES, **how))
