"""What a ported model is made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import nn

from ..adapters import Backend, LossInForward
from ..diagnostics import Finding, Severity, notify
from ..options import PortOptions, to_poptorch

__all__ = ["Parts"]


@dataclass
class Parts:
    """The user's model, loss and optimizer, and their counterparts on the device.

    `wrapped` is the model with its loss in `forward`. `torch_optimizer` is what the user gave; `optimizer` what the
    device uses: the same object where that is one of the backend's, None as long as none was given nor needed.
    `vendor_options` are the backend's options for training (True) and inference (False). `unsaid` are findings of a
    compilation that goes on: one that is an error to somebody must not end it halfway. `num_steps` counts optimizer
    steps, those before a checkpoint included; `random_states` are those of executors that are not made yet, by name;
    `bridges` are references to the schedulers that were connected.
    """

    model: nn.Module
    wrapped: LossInForward
    loss: Any
    label: Any
    backend: Backend
    options: PortOptions
    torch_optimizer: Optional[torch.optim.Optimizer] = None
    optimizer: Any = None
    findings: Tuple[Finding, ...] = ()
    num_steps: int = 0
    random_states: Dict[str, List[int]] = field(default_factory=dict)
    bridges: List[Callable[[], Any]] = field(default_factory=list)
    vendor_options: Dict[bool, Any] = field(init=False)
    unsaid: List[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        make = functools.partial(to_poptorch, self.options, self.backend.module, popdist=self.backend.popdist)
        self.vendor_options = {training: make(training=training) for training in (True, False)}

    def say(self, finding: Finding) -> None:
        """Keep a finding for the report, once for each place, and warn of it unless it is a note or allowed."""
        if any((finding.message, finding.place) == (known.message, known.place) for known in self.findings):
            return
        self.findings += (finding,)
        if finding.severity is not Severity.NOTE and finding.slug not in self.options.allow:
            notify(finding)

    def say_unsaid(self) -> None:
        """Say what a compilation that ended well has found."""
        unsaid, self.unsaid = self.unsaid, []
        for finding in unsaid:
            self.say(finding)

    @property
    def has_counterpart(self) -> bool:
        """Whether the device's optimizer is another object than the one the user holds."""
        return self.torch_optimizer is not None and self.torch_optimizer is not self.optimizer
