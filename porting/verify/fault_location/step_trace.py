"""The values of a micro-batch in the order in which they arise: those of operators, then the gradients of each.

Both sides are recorded in the same way, below autograd, so that eager PyTorch and a replayed graph show the same
operators. Tensors with many elements are kept in part.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from porting.diagnostics import Place
from porting.support.autograd_nodes import NewNodes, is_leaf_node
from porting.torch_insides.modes import TorchDispatchMode
from porting.torch_insides.trees import tree_leaves, tree_map

__all__ = ["GradientRecord", "MicroBatchTrace", "Origin", "TensorForm", "ValueRecord", "keep_part"]

_MOST_ELEMENTS = 1 << 18


class Origin(NamedTuple):
    """Where an operator comes from: the path of its module ("" outside of the model), the user's line, its title."""

    module: str = ""
    place: Optional[Place] = None
    title: str = ""


class TensorForm(NamedTuple):
    """A tensor among an operator's arguments: its shape and type, and whether its values are whole numbers."""

    shape: Tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class ValueRecord:
    """What one operator made: its `results` (large ones in part), and its arguments without values.

    `sources` are the numbers of the records whose results went in.
    """

    operator: Any
    origin: Origin
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    results: Tuple[torch.Tensor, ...]
    number: int = 0
    sources: Tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The operator's name without its overload, as in `aten.mul`."""
        return str(getattr(self.operator, "overloadpacket", self.operator))


@dataclass
class GradientRecord:
    """A node of autograd, and once the backward pass has come to it the gradients that went in and came out.

    `leaves` are the parameters that it sends a gradient to, by the number of the edge.
    """

    node: str
    origin: Origin
    number: int
    leaves: Dict[int, str]
    order: int = -1
    incoming: Tuple[Optional[torch.Tensor], ...] = ()
    outgoing: Tuple[Optional[torch.Tensor], ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether the backward pass came to it."""
        return self.order >= 0


def keep_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of `tensor`, or of evenly spread elements where it has many; the same ones for every tensor."""
    value = tensor.detach()
    if value.numel() <= _MOST_ELEMENTS:
        return value.clone()
    return value.reshape(-1)[:: -(-value.numel() // _MOST_ELEMENTS)].clone()


@dataclass
class MicroBatchTrace:
    """What one micro-batch made: told of operators while it is watched, of autograd's nodes by `take_nodes`."""

    parameter_names: Dict[int, str]
    values: List[ValueRecord] = field(default_factory=list)
    gradients: List[GradientRecord] = field(default_factory=list)
    loss: Optional[torch.Tensor] = None
    origin: Origin = Origin()
    module_inputs: Dict[str, Tuple[Any, ...]] = field(default_factory=dict)
    output: Optional[TensorForm] = None
    _nodes: NewNodes = field(default_factory=NewNodes)
    _made_by: Dict[int, int] = field(default_factory=dict)
    _num_run: int = 0
    _is_watching: bool = False

    @contextmanager
    def watch(self, origin: Origin) -> Iterator[None]:
        """Record the operators that run, as those of `origin`."""
        before, self.origin = self.origin, origin
        was_watching, self._is_watching = self._is_watching, True
        try:
            if was_watching:
                yield
            else:
                with _Recorder(self):
                    yield
        finally:
            self.origin, self._is_watching = before, was_watching

    def add(self, operator: Any, args: Sequence[Any], kwargs: Dict[str, Any], result: Any) -> None:
        """Record the results of an operator; views and empty memory hold no new values."""
        form_args, form_kwargs = tree_map(_describe_leaf, (tuple(args), dict(kwargs)))
        entering = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        made = made[: _NUM_VALUES.get(getattr(operator, "_opname", ""), len(made))]
        sources = {self._made_by[_find_address(leaf)] for leaf in entering if _find_address(leaf) in self._made_by}
        number, results = len(self.values), tuple(map(keep_part, made))
        # views have the memory of what they show, so that an address leads to the operator behind them
        self._made_by.update((_find_address(leaf), number) for leaf in made)
        record = ValueRecord(operator, self.origin, form_args, form_kwargs, results, number, tuple(sorted(sources)))
        self.values.append(record)

    def take_nodes(self, results: Iterable[torch.Tensor], origin: Origin) -> None:
        """Give the nodes of autograd that have come since the last time to `origin`, and watch them."""
        nodes = [node for node in self._nodes.take(results) if not is_leaf_node(node)]
        for node in sorted(nodes, key=_find_sequence_number):
            leaves = {
                edge: self.parameter_names.get(id(following.variable), "")
                for edge, (following, _slot) in enumerate(node.next_functions)
                if following is not None and is_leaf_node(following)
            }
            record = GradientRecord(node.name(), origin, len(self.gradients), leaves)
            self.gradients.append(record)
            node.register_hook(self._make_hook(record))

    def enter_module(self, path: str, args: Sequence[Any]) -> None:
        """Keep the shapes and types of what a module is called with for the first time."""
        self.module_inputs.setdefault(path, tree_map(_describe_leaf, tuple(args)))

    def leave_model(self, output: Sequence[torch.Tensor]) -> None:
        """Keep the shape and type of the first tensor that the model returns."""
        self.output = TensorForm(tuple(output[0].shape), output[0].dtype) if output else None

    def end_forward(self, loss: torch.Tensor) -> None:
        """Keep the loss that the forward pass returned."""
        self.loss = loss.detach().clone()

    def forget_graph(self) -> None:
        """Let go of autograd's nodes, which hold memory."""
        self._nodes = NewNodes()

    def _make_hook(self, record: GradientRecord) -> Any:
        def keep(outgoing: Sequence[Any], incoming: Sequence[Any]) -> None:
            record.order = self._num_run
            self._num_run += 1
            record.incoming = tuple(_keep_gradient(gradient) for gradient in incoming)
            record.outgoing = tuple(_keep_gradient(gradient) for gradient in outgoing)

        return keep


class _Recorder(TorchDispatchMode):
    """Tells a trace of each operator below autograd."""

    def __init__(self, trace: MicroBatchTrace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and record it."""
        result = func(*args, **(kwargs or {}))
        if not _makes_no_value(func):
            self._trace.add(func, args, kwargs or {}, result)
        return result


# further results are workspace, which holds whatever its memory held
_NUM_VALUES = {"mkldnn_rnn_layer": 3}
_EMPTY = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense"])
# `detach` is a view too, and the sign of a cut graph
_VIEWS = frozenset(["t", "view", "_unsafe_view", "expand", "transpose", "permute", "alias", "slice", "select", "split"])


def _makes_no_value(operator: Any) -> bool:
    packet = getattr(operator, "overloadpacket", None)
    return getattr(packet, "__name__", "") in (_EMPTY | _VIEWS)


def _find_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _keep_gradient(gradient: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if gradient is None else keep_part(gradient)


def _find_sequence_number(node: Any) -> int:
    # torch of before 2.1 does not tell: nodes are then in the order of the search
    number = getattr(node, "_sequence_nr", None)
    return int(number()) if number is not None else 0


def _describe_leaf(leaf: Any) -> Any:
    return TensorForm(tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
