"""The backward pass of a search: the operator of `forward` whose derivative is the first that is not finite.

autograd makes nodes of its own for each operator, one or several. The nodes that are new after an operator has run are
its own; a hook on each looks at the gradients that go in and come out. From a parameter whose gradient is not finite
the search goes back along the gradients that were not, to the node that made them of finite ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from porting.observe.autograd_nodes import NewNodes
from porting.observe.watcher import WatchedOperator

from .not_finite import NotFinite
from .value_ranges import ValueRange, is_not_finite, measure_range

if TYPE_CHECKING:  # torch 2.0 has it not
    from torch.autograd.graph import Node

__all__ = ["GradientRecords"]

_FIX = (
    "the derivative is infinite at the edge of the operator's domain: move the input away from it, `(x + eps).sqrt()`",
    "where `torch.where` chooses, mask the input of the operator too: the branch not taken gets 0 x infinity = NaN",
)


@dataclass(frozen=True)
class _Owner:
    operator: WatchedOperator
    inputs: Tuple[ValueRange, ...]


@dataclass(frozen=True)
class _Record:
    """A node that passed on what is not finite: to which of its inputs, and the ranges of what it got and gave."""

    order: int
    edges: Tuple[int, ...]
    incoming: Tuple[ValueRange, ...]
    outgoing: ValueRange

    @property
    def is_origin(self) -> bool:
        return all(gradient.is_finite for gradient in self.incoming)


class GradientRecords:
    """Told of each operator's results, it watches the backward pass that follows; `find` asks for a parameter."""

    def __init__(self) -> None:
        """Begin with a micro-batch of which nothing is known."""
        self._nodes = NewNodes()
        self._owners: Dict[Any, _Owner] = {}
        # by the `id` of a node, which `_owners` keeps alive
        self._records: Dict[int, _Record] = {}

    def take_over(
        self, operator: WatchedOperator, inputs: Tuple[ValueRange, ...], results: Iterable[torch.Tensor]
    ) -> None:
        """Give the nodes that `operator` has made to it, and watch them; `inputs` are the ranges of what it got."""
        owner = _Owner(operator, inputs)
        for node in self._nodes.take(results):
            self._owners[node] = owner
            node.register_hook(self._make_hook(node))

    def find(self, name: str, parameter: torch.Tensor) -> Optional[NotFinite]:
        """Return what made the gradient of `parameter`, called `name`, not finite; None if it is."""
        gradient = parameter.grad
        if gradient is None or not is_not_finite(gradient):
            return None
        found = self._go_back(self._nodes.find_leaf(parameter))
        if found is None:
            return _describe_sum(name, gradient)
        node, record = found
        owner = self._owners.get(node)
        return self._describe_fault(name, record, owner)

    def _make_hook(self, node: Node) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        # a hook that knew its node would keep it, and the weights, for ever: no collector looks into autograd's graph
        records, key = self._records, id(node)

        def look(outgoing: Sequence[Any], incoming: Sequence[Any]) -> None:
            edges = tuple(index for index, gradient in enumerate(outgoing) if is_not_finite(gradient))
            if edges:
                ranges = [
                    measure_range("gradient of the result", gradient) for gradient in incoming if gradient is not None
                ]
                made = measure_range("gradient", outgoing[edges[0]])
                records[key] = _Record(len(records), edges, tuple(ranges), made)

        return look

    def _go_back(self, leaf: Optional[Node]) -> Optional[Tuple[Any, _Record]]:
        """Return the first node, in the order of the backward pass, that what is not finite in `leaf` came from."""
        records = {node: self._records[id(node)] for node in self._owners if id(node) in self._records}
        senders: Dict[Any, List[Any]] = {}
        for node, record in records.items():
            for edge in record.edges:
                senders.setdefault(node.next_functions[edge][0], []).append(node)
        found: Optional[Tuple[Any, _Record]] = None
        at: Any = leaf
        while at is not None and senders.get(at):
            at = min(senders[at], key=lambda node: records[node].order)
            found = (at, records[at])
            if found[1].is_origin:
                break
        return found

    def _describe_fault(self, name: str, record: _Record, owner: Optional[_Owner]) -> NotFinite:
        word = "NaN" if record.outgoing.num_nan else "infinity"
        operator = None if owner is None else owner.operator
        title = "an operator" if operator is None else f"`{operator.name}`"
        inputs = record.incoming + (() if owner is None else owner.inputs)
        if record.is_origin:
            message = f"the derivative of {title} in the backward pass makes {word} of finite gradients"
            return NotFinite("backward", message, operator, name, inputs, record.outgoing, help=_FIX)
        return NotFinite(
            phase="backward",
            message=f"the gradient of the result of {title} is not finite, though each part that it is the sum of is",
            operator=operator,
            name=name,
            inputs=inputs,
            result=record.outgoing,
            help=("lower the loss scaling, or compute this part in float32: the sum is beyond the type's range",),
        )


def _describe_sum(name: str, gradient: torch.Tensor) -> NotFinite:
    return NotFinite(
        phase="backward",
        message=f"the gradient of `{name}` is not finite, though each part that it is the sum of is",
        name=name,
        result=measure_range(f"gradient of {name}", gradient),
        help=("lower the loss scaling: the sum over micro-batches or uses is beyond the type's range",),
    )
