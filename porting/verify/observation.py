"""Define the task of an observed program and its observation, plain data that processes hand to each other.

`program_proof` sends tasks, and `observed_program` returns observations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence

import torch

from porting.diagnostics import Place
from porting.verify.plain_runs import PLAIN, Perturbation
from porting.verify.records import Record

__all__ = ["Observation", "ObservedTraining", "Task"]


@dataclass(frozen=True)
class Task:
    """What is run and how: until an optimizer has made some steps, from a seed, rounded as `perturbation` says."""

    script: str
    arguments: Sequence[str]
    num_steps: int
    seed: int
    is_port: bool = False
    perturbation: Perturbation = PLAIN


@dataclass
class ObservedTraining:
    """What one optimizer trained, or one after the other; `shapes` are those of its parameters.

    `rows` are a number for each sample of each tensor that its model was given, by step. `places` are the user's lines
    of the loss and of the step; `micro_batches` those of a step. `eps` is that of the coarsest type of a parameter.
    """

    record: Record = field(default_factory=Record)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rows: Dict[int, List[torch.Tensor]] = field(default_factory=dict)
    places: Dict[str, Optional[Place]] = field(default_factory=dict)
    steps_per_call: int = 1
    micro_batches: int = 1
    is_on_device: bool = False
    draws: bool = False
    eps: float = 0.0


@dataclass
class Observation:
    """All trainings of a program in the order of their first steps, and what ended it, if that was an error."""

    trainings: List[ObservedTraining] = field(default_factory=list)
    error: str = ""
    place: Optional[Place] = None
