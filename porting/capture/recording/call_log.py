"""The operators that one run of `forward` calls, as Python calls them, for a second run to be held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Protocol, Tuple, Union

import torch

from ...support.function_modes import Args, Kwargs
from ...torch_insides.operators import OpOverload
from ..device_tensor import DeviceTensor
from ..operator_schema import list_leaves, map_leaves
from .tensor_facts import TensorFacts

__all__ = ["ADDED_CONSTANT", "COPIED_HANDLE", "CallLog", "Calls", "LoggedCall", "read_modes"]

# what a recorder does for Python besides recording operators
ADDED_CONSTANT = "constant"
COPIED_HANDLE = "copy"


class _Recording(Protocol):
    """The recorder whose calls these are."""

    graph: torch.fx.Graph
    facts: TensorFacts


class Calls(Protocol):
    """Stands between Python and a recorder: gets each call, and says what comes back."""

    def take(
        self, recorder: Any, operator: Union[OpOverload, str], args: Args, kwargs: Kwargs, run: Callable[[], Any]
    ) -> Any:
        """Return the result of a call, which `run` records."""

    def note_other(self) -> None:
        """Learn that something is recorded, be it by a call or not."""


@dataclass(frozen=True)
class LoggedCall:
    """A call of an operator: its arguments, the modes of torch that it was made in, its results and its last node.

    Tensors of the host among the arguments are copies.
    """

    operator: Any
    args: Args
    kwargs: Kwargs
    modes: Tuple[Any, ...]
    result: Any
    node: Optional[torch.fx.Node]


class CallLog:
    """The calls of a run, in order; `is_complete` until something is recorded that no call of an operator asked for."""

    def __init__(self) -> None:
        """Begin without calls."""
        self.calls: List[LoggedCall] = []
        self.is_complete = True
        self._is_inside = False

    def take(
        self, recorder: _Recording, operator: Union[OpOverload, str], args: Args, kwargs: Kwargs, run: Callable[[], Any]
    ) -> Any:
        """Let `run` record a call, and note it."""
        if self._is_inside or not self.is_complete:
            return run()
        self._is_inside = True
        recorder.facts.advance()
        leaves = list_leaves((args, kwargs))
        tensors = [(leaf, leaf.fake) for leaf in leaves if isinstance(leaf, DeviceTensor)]
        # before it is recorded, which may change them
        given = (args, dict(kwargs))
        if any(isinstance(leaf, torch.Tensor) and not isinstance(leaf, DeviceTensor) for leaf in leaves):
            given = map_leaves(_copy_host_tensor, (args, kwargs))
        try:
            result = run()
        except BaseException:
            self.is_complete = False  # `forward` may go on, after a call that cannot be repeated
            raise
        finally:
            self._is_inside = False
        # a handle that was turned in place is not what it was for the calls before
        self.is_complete = all(tensor.fake is fake for tensor, fake in tensors)
        last = next(iter(reversed(recorder.graph.nodes)), None)
        self.calls.append(LoggedCall(operator, given[0], given[1], read_modes(), result, last))
        return result

    def note_other(self) -> None:
        """Learn that something is recorded: outside of a call it is what the log does not have."""
        self.is_complete = self.is_complete and self._is_inside


def read_modes() -> Tuple[Any, ...]:
    """Return the modes of torch that decide what an operator does."""
    cpu, cuda = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        cpu and torch.get_autocast_dtype("cpu"),
        cuda and torch.get_autocast_dtype("cuda"),
    )


def _copy_host_tensor(leaf: object) -> Any:
    if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DeviceTensor):
        return leaf.detach().clone()
    return leaf
