"""Name the places of a training program that a conversion is about: where the model is called, where a step is made.

The walk through the sources finds them, and so does a dry run of the program; conversions read them from either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Role", "Site"]


class Role(str, Enum):
    """What happens at a place, as far as a conversion cares."""

    FORWARD = "forward"
    """A model is called, outside of other models, while gradients are recorded."""
    EVALUATION = "evaluation"
    """A model is called, outside of other models, without gradients."""
    BACKWARD = "backward"
    STEP = "step"
    """An optimizer makes its step."""
    ZERO_GRAD = "zero_grad"
    CLIP = "clip"
    """The norm of gradients is clipped."""
    SCHEDULE = "schedule"
    """A learning rate's schedule goes on."""
    OPTIMIZER = "optimizer"
    """An optimizer is made."""
    LOADER = "loader"
    """A `DataLoader` is made."""


@dataclass(frozen=True)
class Site:
    """A call in a user's file: `path` is its real path; `column` counts characters from 0, and is -1 where unknown.

    `owner` tells apart the models, or optimizers, that it is made of or called on; `name` is the type of what is called
    or made, as `train.Net` or `torch.optim.sgd.SGD`.
    """

    role: Role
    path: str
    line: int
    column: int = -1
    owner: int = 0
    name: str = ""
