"""A second loss among what a model returns: which one trains must not be decided by its place in a tuple."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Mapping

import torch

from porting.adapters.returned_loss import LOSS_NAME
from porting.diagnostics import CaptureError, Place, caller_place

__all__ = ["refuse_second_loss"]


def refuse_second_loss(returned: Any, loss: torch.Tensor) -> None:
    """Raise CaptureError L005 if `returned` has another scalar with a gradient, from which `loss` is not computed.

    `loss` is the last element of a tuple or list. One that has a name, `loss`, was chosen; so was one that the model
    has marked. Parts that are added up to it are no rivals, and numbers to look at have no gradient: they are detached.
    A device that does not tell which tensors have a gradient while it traces lets all pass.
    """
    if isinstance(returned, (torch.Tensor, Mapping)) or LOSS_NAME in getattr(returned, "_fields", ()):
        return
    if _is_marked(loss):
        return
    rivals = [place for place, value in enumerate(returned) if value is not loss and _could_be_a_loss(value)]
    sources = _find_sources(loss) if rivals else []
    rivals = [place for place in rivals if _find_origin(returned[place]) not in sources]
    if rivals:
        raise _make_two_losses_error(returned, rivals[-1])


def _could_be_a_loss(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.numel() == 1
        and value.is_floating_point()
        and bool(value.requires_grad)
    )


def _is_marked(loss: torch.Tensor) -> bool:
    """Tell whether the model has marked its loss with the identity loss itself, where the capture says so."""
    node = getattr(loss, "node", None)
    return node is not None and "identity_loss" in str(node.target)


def _find_origin(value: torch.Tensor) -> Any:
    """Return what made `value`: a node of the graph under capture, or of autograd's where it is computed at once."""
    node = getattr(value, "node", None)
    return value.grad_fn if node is None else node


def _find_sources(loss: torch.Tensor) -> List[Any]:
    """List everything that `loss` is computed from."""
    start = _find_origin(loss)
    before: Callable[[Any], Iterator[Any]] = (
        _list_before_in_graph if hasattr(start, "all_input_nodes") else _list_before_in_tape
    )
    found, waiting = {start}, [start]
    while waiting:
        for source in before(waiting.pop()):
            if source is not None and source not in found:
                found.add(source)
                waiting.append(source)
    return list(found)


def _list_before_in_graph(node: Any) -> Iterator[Any]:
    yield from node.all_input_nodes


def _list_before_in_tape(function: Any) -> Iterator[Any]:
    for source, _index in getattr(function, "next_functions", ()):
        yield source


def _make_two_losses_error(returned: Any, position: int) -> CaptureError:
    last = len(returned) - 1
    node = getattr(returned[position], "node", None)
    place = node.meta.get("place") if node is not None else None
    return CaptureError.of(
        "L005",
        message=f"the model returns two scalars with a gradient, values {position} and {last}: which one trains?",
        place=place if isinstance(place, Place) else caller_place(),
        label=f"this is value {position}",
        notes=(f"value {last} is not computed from value {position}, so that training on one leaves the other out",),
        help=(
            f"say which one trains: `to_ipu(..., loss_output={last})`",
            "or return their sum last; a number that is only looked at is detached: `value.detach()`",
        ),
    )
