"""A `StepCost` says what replay takes by kinds of operators, from which engines predict what they would take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional

import torch

__all__ = ["StepCost"]


@dataclass(frozen=True)
class StepCost:
    """The seconds of a replayed call by kinds of operators, and the operations of its products.

    `products`, `convolutions` and `cells` are the seconds of matrix products, of convolutions and of LSTMs, `library`
    those of other operators that have a kernel of their own; `rest` includes the way between operators. `peak_flops`
    are the most operations per second that a product has on this machine, 0 where that is not known. `num_iterations`
    are the device iterations of the call. `graph` has the operators of a micro-batch, and `convolution_flops` the
    operations of its convolutions.

    >>> StepCost(products=0.0, library=0.9, update=0.0, rest=0.1).seconds
    1.0
    """

    products: float
    library: float
    update: float
    rest: float
    product_flops: int = 0
    peak_flops: float = 0.0
    num_iterations: int = 1
    convolutions: float = 0.0
    cells: float = 0.0
    graph: Optional[torch.fx.Graph] = None
    convolution_flops: Mapping[torch.fx.Node, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The call as a whole."""
        return self.products + self.convolutions + self.cells + self.library + self.update + self.rest
