"""Define what a watcher is told of a step as it runs.

It hears of operators, of a forward pass and of an update.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Protocol, Sequence

import torch
from torch import nn

from porting.diagnostics import Place

__all__ = [
    "BackwardPass",
    "ForwardResults",
    "NamedValue",
    "Operands",
    "OperatorCall",
    "StepState",
    "WatchedOperator",
    "Watcher",
]


@dataclass(frozen=True)
class WatchedOperator:
    """An operator of `forward`: its name, the path of its module, and the user's line."""

    name: str
    module_path: str = ""
    place: Optional[Place] = None

    @property
    def module_name(self) -> str:
        """The path of the module, or `forward` for what belongs to none."""
        return self.module_path or "forward"


class NamedValue(NamedTuple):
    """A tensor that goes into an operator; `kind` is "parameter", "buffer", "input" or "constant", or empty."""

    name: str
    tensor: torch.Tensor
    kind: str = ""


class Operands(Protocol):
    """Names the tensors of an operator; `names_infinity` tells that an argument of it is infinite."""

    @property
    def names_infinity(self) -> bool:
        """Whether one of the numbers among the arguments is infinite, so that the result is meant to be."""

    def name_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[NamedValue]:
        """Return the tensors among the arguments."""


class OperatorCall(NamedTuple):
    """An operator that is about to run, and the name of its result; nothing is named before somebody asks."""

    operator: WatchedOperator
    result: str
    operands: Operands
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def run(self) -> Any:
        """Run it, and return what it returns."""
        return self.function(*self.args, **self.kwargs)


class ForwardResults(NamedTuple):
    """What a forward pass has made: its loss, if there is one, its outputs, and the buffers that it has written.

    `has_backward` tells that a backward pass follows.
    """

    loss: Optional[torch.Tensor] = None
    outputs: Sequence[torch.Tensor] = ()
    buffers: Mapping[str, torch.Tensor] = {}
    has_backward: bool = True


class BackwardPass(NamedTuple):
    """A backward pass that is about to run, by `run`, and adds to the `.grad` of the parameters.

    The loss is multiplied by `seed` before it, and the sum of all gradients by `factor` before the update uses it.
    """

    run: Callable[[], object]
    parameters: Mapping[str, torch.Tensor]
    seed: float = 1.0
    factor: Optional[float] = None


@dataclass(frozen=True)
class StepState:
    """What a training consists of: parameters and buffers by name, and the optimizer's state by parameter."""

    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict)
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    slots: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: Optional[torch.optim.Optimizer] = None,
        saved: Optional[Mapping[str, Any]] = None,
    ) -> StepState:
        """Read a training; `saved` is what `state_dict()` gives of `optimizer`, by default its own.

        >>> model = nn.Linear(2, 1, bias=False)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> list(StepState.of(model, optimizer, {"state": {0: {"momentum_buffer": torch.ones(1, 2)}}}).slots)
        ['weight']
        """
        named, slots = dict(model.named_parameters()), {}
        if optimizer is not None:
            names = {id(parameter): name for name, parameter in named.items()}
            order = [names.get(id(one), "?") for group in optimizer.param_groups for one in group["params"]]
            for index, own in (optimizer.state_dict() if saved is None else saved).get("state", {}).items():
                slots[order[index] if index < len(order) else f"parameter {index}"] = own
        return cls(named, dict(model.named_buffers()), slots)


class Watcher(Protocol):
    """What is told of a step: each operator of `forward`, the end of the pass, its backward pass, and the update."""

    def run_operator(self, call: OperatorCall) -> Any:
        """Run an operator of a forward pass, and return what it returns."""

    def end_forward(self, results: ForwardResults) -> None:
        """Look at what a micro-batch's forward pass has made."""

    def run_backward(self, backward: BackwardPass) -> None:
        """Run the backward pass of a micro-batch, and look at its gradients."""

    def end_update(self, state: StepState) -> None:
        """Look at what an optimizer step has left."""
