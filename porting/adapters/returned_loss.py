"""Find the loss among the values that a model returns, check that it is the only one, and replace it by the marked.

`LossInForward` uses it for models that compute their own loss.
"""

from __future__ import annotations

import numbers
from typing import Any, Mapping, Optional, Sequence, Set

import torch

from porting.adapters.labels import Key
from porting.diagnostics import CaptureError, Place, PortingError, caller_place, join_names
from porting.structure import Structure, field_names, is_record, read_fields, replace_item

__all__ = ["find_loss", "make_scalar", "refuse_second_loss", "replace_loss"]

_LOSS_NAME = "loss"
_LOSS_OUTPUT_HELP = "say where the loss is: `loss_output=` takes a position or a name"


def find_loss(returned: Any, loss_output: Optional[Key] = None) -> Any:
    """Return the loss inside what a model returned: at `loss_output` where it is given.

    Otherwise it is the key or field `loss`, the last element or field, or a bare tensor itself. Raises
    PortingError: L004 when there is no such thing, L007 for a position that the model does not return.

    >>> find_loss(("logits", "the loss")), find_loss({"logits": 1, "loss": 2})
    ('the loss', 2)
    """
    if isinstance(returned, torch.Tensor) and loss_output is None:
        return returned
    key = _find_loss_key(returned, loss_output)
    return getattr(returned, key) if is_record(returned) else returned[key]


def replace_loss(returned: Structure, loss: torch.Tensor, loss_output: Optional[Key] = None) -> Any:
    """Return what a model returned with its loss (see `find_loss`) exchanged for `loss`; `returned` is left as it is.

    >>> replace_loss(("logits", "the loss"), "a marked loss")
    ('logits', 'a marked loss')
    """
    if isinstance(returned, torch.Tensor):
        return loss
    return replace_item(returned, _find_loss_key(returned, loss_output), loss)


def make_scalar(value: object, *, name: str, reduction: Optional[str]) -> torch.Tensor:
    """Return `value`, the result of the loss called `name`, as a tensor of shape [].

    `reduction` ("mean" or "sum") applies to a loss of several elements. Raises PortingError: L002 when there are
    several and no reduction, or several values; L003 for a number or an integer tensor; L004 for None.
    """
    if not isinstance(value, torch.Tensor):
        raise _make_kind_error(value, name)
    if not value.dtype.is_floating_point:
        raise PortingError.at_caller(
            "L003",
            message=f"{name} gives a tensor of type {value.dtype}, which can have no gradient",
            help="use a differentiable loss; counts and accuracies are `metrics=`",
        )
    if value.numel() == 1:
        return value if value.dim() == 0 else value.sum()
    if reduction is None:
        raise PortingError.at_caller(
            "L002",
            message=f"{name} gives a loss of shape {list(value.shape)}",
            label="training starts from one number",
            help=(
                "give the loss `reduction='mean'` (or 'sum'), either its own argument or the adapter's",
                *(("or pass the loss, if the model returns none: `to_ipu(model, loss)`",) if "own" in name else ()),
            ),
        )
    return value.mean() if reduction == "mean" else value.sum()


def refuse_second_loss(returned: Any, loss: torch.Tensor) -> None:
    """Raise CaptureError L005 if `returned` has another scalar with a gradient, from which `loss` is not computed.

    `loss` is the last element of a tuple or list. One that has a name, `loss`, was chosen; so was one that the model
    has marked. Parts that are added up to it are no rivals, and numbers to look at have no gradient: they are detached.
    A device that does not tell which tensors have a gradient while it traces lets all pass.
    """
    is_named = isinstance(returned, (torch.Tensor, Mapping)) or _LOSS_NAME in field_names(returned)
    # the node of the identity loss, where the capture says so
    if is_named or "identity_loss" in str(getattr(getattr(loss, "node", None), "target", "")):
        return
    values = list(read_fields(returned).values() if is_record(returned) else returned)
    rivals = [place for place, value in enumerate(values) if value is not loss and _could_be_a_loss(value)]
    sources = _collect_sources(loss) if rivals else set()
    rivals = [place for place in rivals if _find_origin(values[place]) not in sources]
    if not rivals:
        return
    position, last = rivals[-1], len(values) - 1
    node = getattr(values[position], "node", None)
    place = node.meta.get("place") if node is not None else None
    raise CaptureError.of(
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


def _could_be_a_loss(value: object) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return value.numel() == 1 and value.is_floating_point() and bool(value.requires_grad)


def _find_origin(value: torch.Tensor) -> Any:
    """Return what made `value`: a node of the graph under capture, or of autograd's where it is computed at once."""
    node = getattr(value, "node", None)
    return value.grad_fn if node is None else node


def _collect_sources(loss: torch.Tensor) -> Set[Any]:
    """Collect everything that `loss` is computed from."""
    found = {_find_origin(loss)}
    waiting = list(found)
    while waiting:
        node = waiting.pop()
        tape = [source for source, _index in getattr(node, "next_functions", ())]
        fresh = set(getattr(node, "all_input_nodes", tape)) - found - {None}
        found |= fresh
        waiting += fresh
    return found


def _find_loss_key(returned: Any, loss_output: Optional[Key]) -> Any:
    if isinstance(returned, Mapping):
        key = _LOSS_NAME if loss_output is None else loss_output
        if key not in returned:
            names = join_names(returned)
            raise _make_missing_error(f"no `{key}` among the keys {names} that it returns")
        return key
    fields = field_names(returned)
    places = range(len(returned) if isinstance(returned, (tuple, list)) else 0)
    keys: Sequence[Key] = fields if is_record(returned) else places
    if not keys:
        raise _make_missing_error(f"none in the {_describe_kind(returned)} that it returns")
    if isinstance(loss_output, str):
        if loss_output not in fields:
            raise _make_missing_error(f"no field `{loss_output}` in the {_describe_kind(returned)} that it returns")
        return keys[fields.index(loss_output)]
    if loss_output is None:
        return keys[fields.index(_LOSS_NAME)] if _LOSS_NAME in fields else keys[-1]
    if not -len(keys) <= loss_output < len(keys):
        raise PortingError.at_caller(
            "L007",
            message=f"the loss should be value {loss_output} of what the model returns, but it returns {len(keys)}",
            help=_LOSS_OUTPUT_HELP,
        )
    return keys[loss_output]


def _make_missing_error(what: str) -> PortingError:
    return PortingError.at_caller(
        "L004",
        message=f"the model should return its loss, but there is {what}",
        notes="no loss was given to the adapter, so the model's own is used",
        help=(_LOSS_OUTPUT_HELP, "or pass the loss: `to_ipu(model, loss)`"),
    )


def _make_kind_error(value: object, name: str) -> PortingError:
    if value is None:
        code, fault, remedies = "L004", "None", ["return the loss from it"]
    elif isinstance(value, numbers.Number):
        code, fault = "L003", f"a Python {type(value).__name__}, which has no gradient"
        remedies = ["keep the loss a tensor: no `.item()`, `float()` or `.numpy()` on the way to it"]
    else:
        code, fault = "L002", f"a {_describe_kind(value)}, not a tensor"
        remedies = ["return one tensor", "or pass several losses: `loss={'a': loss_a, 'b': loss_b}`"]
    return PortingError.at_caller(code, message=f"{name} gives {fault}", help=remedies)


def _describe_kind(value: object) -> str:
    if isinstance(value, (tuple, list, Mapping)):
        return f"{type(value).__name__} of {len(value)} values"
    return type(value).__name__
