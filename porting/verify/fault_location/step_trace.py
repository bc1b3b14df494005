"""Record the values of a micro-batch in the order in which they arise: those of operators, then their gradients.

Both sides are recorded in the same way, below autograd, so that eager PyTorch and a replayed graph show the same
operators. Tensors with many elements are kept in part.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from porting.diagnostics import Place
from porting.observe.autograd_nodes import NewNodes
from porting.structure import flatten_tensors
from porting.torch_insides.modes import TorchDispatchMode
from porting.torch_insides.trees import tree_leaves, tree_map

__all__ = ["MicroBatchTrace", "Origin", "TensorForm", "ValueRecord", "keep_part"]

_MOST_ELEMENTS = 1 << 18


class Origin(NamedTuple):
    """Where an operator comes from: the path of its module ("" outside of the model), the user's line, its title."""

    module: str = ""
    place: Optional[Place] = None
    title: str = ""


class TensorForm(NamedTuple):
    """A tensor among an operator's arguments: its shape and type, without values."""

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
    is_backward: bool = False

    @property
    def name(self) -> str:
        """The operator's name without its overload, as in `aten.mul`."""
        return str(getattr(self.operator, "overloadpacket", self.operator))


def keep_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of `tensor`, or of evenly spread elements where it has many; the same ones for every tensor."""
    value = tensor.detach()
    if value.numel() <= _MOST_ELEMENTS:
        return value.clone()
    return value.reshape(-1)[:: -(-value.numel() // _MOST_ELEMENTS)].clone()


@dataclass
class MicroBatchTrace:
    """What one micro-batch made: its functions are run by `run`, its backward pass by `run_backward`."""

    values: List[ValueRecord] = field(default_factory=list)
    loss: Optional[torch.Tensor] = None
    module_inputs: Dict[str, Tuple[Any, ...]] = field(default_factory=dict)
    _origin: Optional[Origin] = None
    _is_backward: bool = False
    _nodes: NewNodes = field(default_factory=NewNodes)
    _made_by: Dict[int, int] = field(default_factory=dict)
    _loss_number: Optional[int] = None

    def run(self, origin: Origin, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function and record its operators, as those of `origin`; the gradients' of it will be, too."""
        before, self._origin = self._origin, origin
        try:
            # within another it is recorded already
            with _TracingMode(self) if before is None else nullcontext():
                result = function(*args, **kwargs)
        finally:
            self._origin = before
        for node in self._nodes.take(flatten_tensors(result)):
            node.register_prehook(partial(self._set_origin, origin._replace(title=node.name())))
            node.register_hook(partial(self._set_origin, None))
        return result

    def run_backward(self, backward: Callable[[], Any]) -> None:
        """Run the backward pass and record its operators, each as that of the function whose gradient it makes."""
        self._is_backward = True
        with _TracingMode(self):
            backward()
        # nodes hold memory
        self._nodes = NewNodes()

    def add(
        self, operator: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any], result: object
    ) -> None:
        """Record the results of an operator; what adds gradients up is of no function."""
        if self._origin is None:
            return
        form_args, form_kwargs = tree_map(_describe_leaf, (tuple(args), dict(kwargs)))
        entering = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        made = made[: _NUM_VALUES.get(getattr(operator, "_opname", ""), len(made))]
        sources = {self._made_by[_find_address(leaf)] for leaf in entering if _find_address(leaf) in self._made_by}
        # views have the memory of what they show, so that an address leads to the operator behind them
        self._made_by.update((_find_address(leaf), len(self.values)) for leaf in made)
        record = ValueRecord(
            operator=operator,
            origin=self._origin,
            args=form_args,
            kwargs=form_kwargs,
            results=tuple(map(keep_part, made)),
            number=len(self.values),
            sources=tuple(sorted(sources)),
            is_backward=self._is_backward,
        )
        self.values.append(record)

    def keep_loss(self, loss: torch.Tensor) -> None:
        """Keep the loss that the forward pass ends with."""
        self.loss, self._loss_number = loss.detach().clone(), self._made_by.get(_find_address(loss))

    def collect_used(self) -> Set[int]:
        """Return the numbers of the operators that the loss depends on; of all where that is not known."""
        if self._loss_number is None:
            return set(range(len(self.values)))
        used, waiting = set(), [self._loss_number]
        while waiting:
            number = waiting.pop()
            if number not in used:
                used.add(number)
                waiting += self.values[number].sources
        return used

    def enter_module(self, path: str, args: Sequence[Any]) -> None:
        """Keep the shapes and types of what a module is called with for the first time."""
        self.module_inputs.setdefault(path, tree_map(_describe_leaf, tuple(args)))

    def _set_origin(self, origin: Optional[Origin], *_gradients: object) -> None:
        self._origin = origin


class _TracingMode(TorchDispatchMode):
    """Tells a trace of each operator below autograd."""

    def __init__(self, trace: MicroBatchTrace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Run one operator and record it."""
        result = func(*args, **(kwargs or {}))
        if getattr(getattr(func, "overloadpacket", None), "__name__", "") not in _EMPTY | _VIEWS:
            self._trace.add(func, args, kwargs or {}, result)
        return result


# further results are workspace, which holds whatever its memory held
_NUM_VALUES = {"mkldnn_rnn_layer": 3}
_EMPTY = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense"])
# these show the same numbers; to take a part of them or to exchange axes may be a fault, and `detach` cuts the graph
_VIEWS = frozenset(["t", "view", "_unsafe_view", "expand", "alias"])


def _find_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _describe_leaf(leaf: object) -> Any:
    return TensorForm(tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
