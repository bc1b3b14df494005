"""A workload that has a name: how it is made, what it is measured with, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence, Tuple

import torch
from torch import nn

from porting.options import PortOptions

__all__ = ["MakeOptimizer", "Parts", "SuiteEntry"]

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
"""Makes an optimizer of parameters."""

Parts = Tuple[nn.Module, Any, Any, MakeOptimizer]
"""Model, loss, batch, and the function of parameters that makes the optimizer."""


@dataclass(frozen=True)
class SuiteEntry:
    """A workload by name.

    `make` gets the rows of a call and returns the parts; that of an entry with `has_layers` may be asked for a number
    of `layers`. `demanded` has the speed-up over float32 eager that is asked of each precision; precisions that are not
    in it are not part of the suite. `matrix` (see `Choices`) and `settings` (fields of `BenchSettings`) are what it is
    measured with unless others are named. `needs` are the libraries without which it cannot be made.
    """

    title: str
    batch: int
    make: Callable[..., Parts]
    demanded: Mapping[str, float]
    options: PortOptions = field(default_factory=PortOptions)
    trains: bool = True
    matrix: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_layers: bool = False
    needs: Sequence[str] = ()
