"""The loss among the values that a model returns: found, checked to be a scalar, and exchanged for the marked one."""

from __future__ import annotations

import copy
import numbers
from typing import Any, Dict, Mapping, Optional, Tuple

import torch

from porting.adapters.labels import Key
from porting.diagnostics import PortingError, caller_place

__all__ = ["LOSS_NAME", "find_loss", "make_scalar", "replace_loss"]

LOSS_NAME = "loss"
"""The key or field that holds the loss unless the user names another."""

_LOSS_OUTPUT_HELP = "say where the loss is: `loss_output=` takes a position or a name"


def find_loss(returned: Any, loss_output: Optional[Key] = None) -> Any:
    """Return the loss inside what a model returned: at `loss_output` where it is given.

    Otherwise it is the key or field `loss`, the last element of a tuple or list, or a bare tensor itself. Raises
    PortingError: L004 when there is no such thing, L007 for a position that the model does not return.

    >>> find_loss(("logits", "the loss")), find_loss({"logits": 1, "loss": 2})
    ('the loss', 2)
    """
    if isinstance(returned, torch.Tensor) and loss_output is None:
        return returned
    key = _find_loss_key(returned, loss_output)
    return returned[key]


def replace_loss(returned: Any, loss: torch.Tensor, loss_output: Optional[Key] = None) -> Any:
    """Return what a model returned with its loss (see `find_loss`) exchanged for `loss`; `returned` is left as it is.

    >>> replace_loss(("logits", "the loss"), "a marked loss")
    ('logits', 'a marked loss')
    """
    if isinstance(returned, torch.Tensor):
        return loss
    key = _find_loss_key(returned, loss_output)
    if isinstance(returned, Mapping):
        changed: Any = copy.copy(returned)
        changed[key] = loss
        return changed
    items = list(returned)
    items[key] = loss
    if hasattr(returned, "_fields"):
        return type(returned)(*items)
    return type(returned)(items)


def make_scalar(value: Any, *, name: str, reduction: Optional[str]) -> torch.Tensor:
    """Return `value`, the result of the loss called `name`, as a tensor of shape [].

    `reduction` ("mean" or "sum") applies to a loss of several elements. Raises PortingError: L002 when there are
    several and no reduction, or several values; L003 for a number or an integer tensor; L004 for None.
    """
    if not isinstance(value, torch.Tensor):
        raise _make_kind_error(value, name)
    if not value.dtype.is_floating_point:
        raise PortingError.of(
            "L003",
            message=f"{name} gives a tensor of type {value.dtype}, which can have no gradient",
            place=caller_place(),
            help="use a differentiable loss; counts and accuracies are `metrics=`",
        )
    if value.numel() == 1:
        return value if value.dim() == 0 else value.sum()
    if reduction is None:
        raise PortingError.of(
            "L002",
            message=f"{name} gives a loss of shape {list(value.shape)}",
            place=caller_place(),
            label="training starts from one number",
            help=(
                "give the loss `reduction='mean'` (or 'sum'), either its own argument or the adapter's",
                *(("or pass the loss, if the model returns none: `to_ipu(model, loss)`",) if "own" in name else ()),
            ),
        )
    return value.mean() if reduction == "mean" else value.sum()


def _find_loss_key(returned: Any, loss_output: Optional[Key]) -> Any:
    if isinstance(returned, Mapping):
        key = LOSS_NAME if loss_output is None else loss_output
        if key not in returned:
            raise _make_missing_error(f"no `{key}` among the keys {_list_names(returned)} that it returns")
        return key
    if not isinstance(returned, (tuple, list)) or not returned:
        raise _make_missing_error(f"none in the {_describe_kind(returned)} that it returns")
    fields = list(getattr(returned, "_fields", ()))
    if isinstance(loss_output, str):
        if loss_output not in fields:
            raise _make_missing_error(f"no field `{loss_output}` in the {_describe_kind(returned)} that it returns")
        return fields.index(loss_output)
    if loss_output is None:
        return fields.index(LOSS_NAME) if LOSS_NAME in fields else len(returned) - 1
    return _check_position(returned, loss_output)


def _check_position(returned: Any, position: int) -> int:
    if not -len(returned) <= position < len(returned):
        raise PortingError.of(
            "L007",
            message=f"the loss should be value {position} of what the model returns, but it returns {len(returned)}",
            place=caller_place(),
            help=_LOSS_OUTPUT_HELP,
        )
    return position


def _make_missing_error(what: str) -> PortingError:
    return PortingError.of(
        "L004",
        message=f"the model should return its loss, but there is {what}",
        place=caller_place(),
        notes="no loss was given to the adapter, so the model's own is used",
        help=(_LOSS_OUTPUT_HELP, "or pass the loss: `to_ipu(model, loss)`"),
    )


def _make_kind_error(value: Any, name: str) -> PortingError:
    explained: Dict[str, Any] = {"place": caller_place()}
    if value is None:
        return PortingError.of("L004", message=f"{name} gives None", help="return the loss from it", **explained)
    if isinstance(value, numbers.Number):
        return PortingError.of(
            "L003",
            message=f"{name} gives a Python {type(value).__name__}, which has no gradient",
            help="keep the loss a tensor: no `.item()`, `float()` or `.numpy()` on the way to it",
            **explained,
        )
    several: Tuple[str, ...] = ("return one tensor", "or pass several losses: `loss={'a': loss_a, 'b': loss_b}`")
    return PortingError.of(
        "L002", message=f"{name} gives a {_describe_kind(value)}, not a tensor", help=several, **explained
    )


def _describe_kind(value: Any) -> str:
    if isinstance(value, (tuple, list, Mapping)):
        return f"{type(value).__name__} of {len(value)} values"
    return type(value).__name__


def _list_names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)
