"""Labels and indices of batches are held against what they choose from, as the graph of the step tells."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from ..capture import StepGraph
from ..capture.subgraphs import is_random
from ..diagnostics import Finding
from ..structure import flatten_tensors
from ..torch_insides.operators import OpOverload
from .step_capture import Arguments

__all__ = ["IndexTensors", "iter_values_out_of_range", "list_index_tensors"]

IndexTensors = List[Optional[torch.Tensor]]
"""The tensors of a batch in the order in which they enter a step; None for those that cannot be indices."""

# an operator's numbers of the arguments of what is chosen from, of the index and of the label that is left out
_LOSS = (0, 1, 4)
_CHOOSING: Mapping[str, Tuple[int, int, Optional[int]]] = {
    **dict.fromkeys(("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"), _LOSS),
    **dict.fromkeys(("embedding", "embedding_bag"), (0, 1, None)),
}
_IGNORED_BY_DEFAULT = -100
_MOST_SHOWN = 3


def list_index_tensors(arguments: Arguments) -> IndexTensors:
    """List the tensors of whole numbers among a batch's tensors."""
    tensors = flatten_tensors(arguments)
    return [None if tensor.is_floating_point() or tensor.is_meta else tensor.detach() for tensor in tensors]


def iter_values_out_of_range(graph: StepGraph, batches: Mapping[str, IndexTensors]) -> Iterator[Finding]:
    """Yield B013 in batches: a label that is none of a loss's classes, or an index that has no row in an embedding.

    What a step computes of labels before the loss takes them is computed here as well; an index that weights have a
    part in is left out. `batches` are named as they are to be called in findings.
    """
    for node in graph.graph.nodes:
        choice = _CHOOSING.get(str(node.target).split(".")[1]) if isinstance(node.target, OpOverload) else None
        index = node.args[choice[1]] if choice is not None and len(node.args) > 1 else None
        if choice is None or not isinstance(index, torch.fx.Node):
            continue
        limit = _count_choices(node.args[choice[0]], is_loss=choice is _LOSS)
        ignored = _find_ignored(node, choice[2])
        for name, batch in batches.items():
            parts = _compute_index(index, graph, batch)
            wrong = sorted({value for part in parts for value in _list_wrong(part, limit, ignored)})
            if wrong:
                seen = f"{name} has {', '.join(map(str, wrong[:_MOST_SHOWN]))}"
                yield _describe_fault(node, seen, limit, is_loss=choice is _LOSS)
                break


def _count_choices(node: torch.fx.Node, *, is_loss: bool) -> int:
    shape = node.meta["val"].shape
    return int(shape[1] if is_loss and len(shape) > 1 else shape[0])


def _find_ignored(node: torch.fx.Node, position: Optional[int]) -> Optional[int]:
    if position is None:
        return None
    given = node.args[position] if len(node.args) > position else node.kwargs.get("ignore_index", _IGNORED_BY_DEFAULT)
    return given if isinstance(given, int) else None


def _compute_index(index: torch.fx.Node, graph: StepGraph, batch: IndexTensors) -> Iterator[torch.Tensor]:
    """Compute an index of a batch, for one micro-batch after the other; nothing where it needs more than the batch."""
    first = len(graph.parameters) + len(graph.buffers)
    inputs = graph.placeholders[first : first + len(graph.inputs)]
    sizes = [info.shape[0] for info, tensor in zip(graph.inputs, batch) if tensor is not None and info.shape]
    rows = sizes[0] if sizes else 1
    num_parts = max(
        (len(tensor) // rows for tensor in batch if tensor is not None and tensor.dim() and rows), default=0
    )
    for part in range(num_parts):
        # operators in place would change the user's batch
        values: Dict[torch.fx.Node, Any] = {
            node: (tensor[part * rows : (part + 1) * rows] if tensor.dim() else tensor).clone()
            for node, tensor in zip(inputs, batch)
            if tensor is not None
        }
        try:
            computed = _evaluate_node(index, values)
        except (LookupError, RuntimeError, TypeError):
            return
        if not computed.is_floating_point():
            yield computed


def _evaluate_node(node: torch.fx.Node, values: Dict[torch.fx.Node, Any]) -> Any:
    if node not in values:
        if not isinstance(node.target, OpOverload) or is_random(node):
            raise LookupError(node.name)
        args, kwargs = torch.fx.node.map_arg(
            (node.args, dict(node.kwargs)), lambda inner: _evaluate_node(inner, values)
        )
        values[node] = node.target(*args, **kwargs)
    return values[node]


def _list_wrong(index: torch.Tensor, limit: int, ignored: Optional[int]) -> List[int]:
    is_wrong = (index < 0) | (index >= limit)
    if ignored is not None:
        is_wrong &= index != ignored
    return [] if not bool(is_wrong.any()) else torch.unique(index[is_wrong]).tolist()


def _describe_fault(node: torch.fx.Node, seen: str, limit: int, *, is_loss: bool) -> Finding:
    return Finding(
        "B013",
        message="a label is none of the classes" if is_loss else "an index has no row in the table",
        place=node.meta.get("place"),
        notes=(
            f"there are {limit} {'classes' if is_loss else 'rows'}, from 0 to {limit - 1}; {seen}",
            "an IPU would not notice, and train with some other number",
        ),
        help=(
            "count labels from 0, and give the last layer an output for each: or leave some out by `ignore_index`"
            if is_loss
            else "give the embedding a row for each index, or replace those that it does not know"
        ),
    )
