"""Define the task of an observed program and its observation, plain data that processes hand to each other.

`program_proof` sends tasks, and `observed_program` returns observations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.diagnostics import Place
from porting.verify.plain_runs import PLAIN, Perturbation
from porting.verify.records import Record

__all__ = ["OUT_OF_TIME", "Observation", "ObservedTraining", "ProjectRun", "Task"]

OUT_OF_TIME = "it was ended after"
"""What the error of a program begins with whose time was over."""


@dataclass(frozen=True)
class ProjectRun:
    """A program that is run in a copy of its project: `roots` are the folder of the project and those it links to.

    `working` is the folder in the project that it is started from. After `limit_seconds` it is ended.
    """

    roots: Tuple[str, ...]
    working: str = "."
    limit_seconds: int = 600


@dataclass(frozen=True)
class Task:
    """What is run and how: until an optimizer has made some steps, from a seed, rounded as `perturbation` says.

    Without a `project` the script works in a folder of links to what lies in this process's. `is_exact` asks for
    digests of all bits, and `anchors_gradients` for gradients that a simulated device would keep.
    """

    script: str
    arguments: Sequence[str]
    num_steps: int
    seed: int
    is_port: bool = False
    perturbation: Perturbation = PLAIN
    project: Optional[ProjectRun] = None
    is_exact: bool = False
    anchors_gradients: bool = False


@dataclass
class ObservedTraining:
    """What one optimizer trained, or one after the other; `shapes` are those of its parameters.

    `rows` are a number for each sample of each tensor that its model was given, by step. `places` are the user's lines
    of the loss and of the step; `micro_batches` those of a step. `eps` is that of the coarsest type of a parameter.
    `num_device_steps` counts the steps that a device had a part in.
    """

    record: Record = field(default_factory=Record)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rows: Dict[int, List[torch.Tensor]] = field(default_factory=dict)
    places: Dict[str, Optional[Place]] = field(default_factory=dict)
    steps_per_call: int = 1
    micro_batches: int = 1
    is_on_device: bool = False
    num_device_steps: int = 0
    draws: bool = False
    eps: float = 0.0


@dataclass
class Observation:
    """All trainings of a program in the order of their first steps, and what ended it, if that was an error.

    `said` are the last lines that it wrote.
    """

    trainings: List[ObservedTraining] = field(default_factory=list)
    error: str = ""
    place: Optional[Place] = None
    said: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the time of the program was over, which is no fault of its."""
        return self.error.startswith(OUT_OF_TIME)

    @property
    def num_steps(self) -> int:
        """The most steps that an optimizer has made."""
        return max((training.record.num_steps for training in self.trainings), default=0)
