"""Keep the rows that a boolean mask selects together with their mask until they are reduced.

`logits[mask]` has as many rows as the mask has ones, which only the device knows, and a static graph has no such shape.
What follows is mostly elementwise work and a mean, which can be had from all rows and the mask. The operator table has
it for `torch.masked_select` and for reads by an index.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from porting.diagnostics import CaptureError, Place, PortingError, amended_refusals, caller_place
from porting.remedies.entries import Fallback, OperatorSubstitute
from porting.structure import is_record, read_fields, replace_fields
from porting.support.function_modes import Args, Kwargs
from porting.support.versions import read_version

__all__ = ["SUBSTITUTES", "MaskedRows", "answer_masked", "read_rows", "settle"]


class MaskedRows:
    """The rows of a tensor that a mask selects; torch's functions know it by `__torch_function__`.

    `values` has all N rows (N, ...), with ones in those that are left out, so that neither a logarithm nor a root of
    them is infinite; `mask` is (N), and `index` the mask as it was given. `read` makes the tensor that the program
    asked for, or says why there is none.
    """

    def __init__(self, values: torch.Tensor, mask: torch.Tensor, index: torch.Tensor, read: Callable[[], Any]) -> None:
        self.values, self.mask, self.index, self.read = values, mask, index, read

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        """Compute with all rows where that gives the same; else read the rows, which fails unless they are known."""
        return answer_masked(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        """Find a method of tensors, or a fact that all rows share."""
        if name in ("dtype", "device", "requires_grad"):
            return getattr(self.values, name)
        member = getattr(torch.Tensor, name)
        if callable(member):
            return lambda *args, **kwargs: answer_masked(member, (self, *args), kwargs)
        return getattr(self.read(), name)

    def __getitem__(self, index: object) -> Any:
        """Read some of the rows, which are not known."""
        return self.read()[index]

    def __len__(self) -> int:
        """Count the rows, which only the device can."""
        return len(self.read())

    def with_values(self, values: torch.Tensor) -> MaskedRows:
        """Return rows of the same mask."""
        return MaskedRows(values, self.mask, self.index, self.read)

    def filled(self, value: float) -> torch.Tensor:
        """Return all rows, with `value` in those that are left out."""
        return torch.where(
            _widen(self.mask, self.values), self.values, torch.full_like(self.values, value, device=self.values.device)
        )


def _make_operator(name: str) -> Callable[..., Any]:
    def apply(self: MaskedRows, *others: Any) -> Any:
        return answer_masked(getattr(torch.Tensor, name), (self, *others), {})

    return apply


_OPERATORS = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __neg__ __abs__ __eq__ "
    "__ne__ __lt__ __le__ __gt__ __ge__"
).split()
for _name in _OPERATORS:
    setattr(MaskedRows, _name, _make_operator(_name))
# comparing rows compares their elements, and does not tell rows apart
MaskedRows.__hash__ = object.__hash__  # type: ignore[method-assign]


def read_rows(read: Callable[..., Any], x: torch.Tensor, mask: Any) -> Any:
    """Select the rows of `x` where `mask`, a boolean tensor of the device over its first dimensions, is True."""
    parts = mask if isinstance(mask, tuple) else (mask,)
    mask = parts[0] if parts else None
    is_mask = isinstance(mask, torch.Tensor) and mask.device.type == "ipu" and mask.dtype is torch.bool
    if (
        _reading
        or not is_mask
        or not mask.dim()
        or any(part != slice(None) for part in parts[1:])
        or mask.shape != x.shape[: mask.dim()]
    ):
        return Fallback
    flat = mask.reshape(-1)
    rows = x.reshape(flat.shape[0], *x.shape[mask.dim() :])
    place = caller_place()
    values = torch.where(_widen(flat, rows), rows, torch.ones_like(rows, device=rows.device))
    return MaskedRows(values, flat, mask, functools.partial(_read_known, read, x, parts, place))


def _read_known(read: Callable[..., Any], x: torch.Tensor, parts: Sequence[Any], place: Optional[Place]) -> Any:
    """Read the rows where their number is known after all; otherwise the error names the line that selected them."""

    def name_line(error: PortingError) -> PortingError:
        if error.code != "C002":
            return error
        return CaptureError.of(
            "C002",
            message=error.finding.message,
            place=place,
            label="a static graph has to know every shape when it is compiled",
            notes="only elementwise functions, sums, means and losses of such rows are computed with the mask",
            help="keep the shape fixed: `torch.where` with the mask, or a loss with `ignore_index`",
        )

    _reading.append(True)
    try:
        with amended_refusals(name_line):
            return read(x, parts if len(parts) > 1 else parts[0])
    except CaptureError as error:
        if error.code != "C002":
            raise
        raise name_line(error) from None
    finally:
        _reading.pop()


# not empty while rows are read after all, by the function that is answered otherwise
_reading: List[bool] = []


def _widen(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return mask.reshape(-1, *[1] * (values.dim() - 1))


def settle(value: object) -> Any:
    """Return `value`, which may be nested, with all rows of masks read: what leaves the model is tensors."""
    if isinstance(value, MaskedRows):
        return value.read()
    if isinstance(value, dict) and any(isinstance(item, MaskedRows) for item in value.values()):
        for key in list(value):
            value[key] = settle(value[key])
        return value
    if is_record(value):
        return replace_fields(value, {name: settle(item) for name, item in read_fields(value).items()})
    if isinstance(value, (tuple, list)) and any(isinstance(item, (MaskedRows, tuple, list, dict)) for item in value):
        settled = [settle(item) for item in value]
        return type(value)(*settled) if hasattr(value, "_fields") else type(value)(settled)
    return value


# -- functions of rows -------------------------------------------------------------------------------------------------


def answer_masked(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute `func` of arguments of which some are `MaskedRows`."""
    values = [*args, *kwargs.values()]
    rows = [value for value in values if isinstance(value, MaskedRows)]
    name = getattr(func, "__name__", "")
    if len(rows) == sum(map(_has_rows, values)) and all(other.index is rows[0].index for other in rows):
        if func is torch.Tensor.__setitem__ and args[1] is rows[0].index:
            return _write_rows(*args)
        if name == "ctc_loss" and rows[0].index.dim() == 2:
            return _compute_ctc_loss(func, rows[0], args, kwargs)
        if name in _LOSSES:
            return _compute_loss(func, args, kwargs)
        if name in _REDUCTIONS and len(args) == 1 and not kwargs:
            return _REDUCTIONS[name](rows[0])
        if name in _RESHAPES:
            reshaped = _reshape(rows[0], args[1:], kwargs)
            if reshaped is not None:
                return reshaped
        if name in _ELEMENTWISE and all(map(_is_shared, values)):
            return rows[0].with_values(_call_with_values(func, args, kwargs))
        if name in _BY_ROW and isinstance(args[0], MaskedRows) and rows[0].values.dim() > 1 and len(rows) == 1:
            return rows[0].with_values(_call_with_values(func, args, kwargs))
    return _call_with_rows_read(func, args, kwargs)


def _write_rows(target: torch.Tensor, index: torch.Tensor, rows: MaskedRows) -> None:
    """Write rows to where they were read, by the same mask, in a tensor of that shape."""
    values = rows.values.reshape(*index.shape, *rows.values.shape[1:])
    is_written = index.reshape(*index.shape, *[1] * (values.dim() - index.dim()))
    target.copy_(torch.where(is_written, values.to(target.dtype), target))


def _has_rows(value: object) -> bool:
    items = value if isinstance(value, (tuple, list)) else [value]
    return any(isinstance(item, MaskedRows) for item in items)


def _is_shared(value: object) -> bool:
    """Tell whether a value is the same for all rows: everything but a tensor with rows of its own."""
    return not isinstance(value, torch.Tensor) or value.dim() == 0


def _take_values(value: object) -> Any:
    return value.values if isinstance(value, MaskedRows) else value


def _call_with_values(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    return func(*map(_take_values, args), **{key: _take_values(value) for key, value in kwargs.items()})


def _call_with_rows_read(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    return func(*map(_read_all, args), **{key: _read_all(value) for key, value in kwargs.items()})


def _read_all(value: object) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_read_all, value))
    return value.read() if isinstance(value, MaskedRows) else value


def _reshape(rows: MaskedRows, shape: Sequence[Any], kwargs: Kwargs) -> Optional[MaskedRows]:
    """Return rows of another shape if that keeps the rows: `view(-1)` of single numbers, or `view(-1, ...)`."""
    sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
    if kwargs or sizes[:1] != [-1] or any(not isinstance(size, int) or size < 0 for size in sizes[1:]):
        return None
    if math.prod(rows.values.shape[1:]) != math.prod(sizes[1:]):
        return None
    return rows.with_values(rows.values.reshape(rows.values.shape[0], *sizes[1:]))


def _sum(rows: MaskedRows) -> torch.Tensor:
    return rows.filled(0).sum()


def _mean(rows: MaskedRows) -> torch.Tensor:
    return _sum(rows) / (rows.mask.to(rows.values.dtype).sum() * math.prod(rows.values.shape[1:]))


_REDUCTIONS: Dict[str, Callable[[MaskedRows], torch.Tensor]] = {"sum": _sum, "mean": _mean}
_RESHAPES = ("view", "reshape")
_ELEMENTWISE = frozenset(
    "abs absolute add ceil clamp clip contiguous cos div divide elu eq erf exp expm1 float floor ge gelu gt half "
    "hardtanh le leaky_relu log log10 log1p log2 logit logsigmoid lt mul multiply ne neg negative pow reciprocal relu "
    "round rsqrt rsub sigmoid sign silu sin softplus sqrt square sub subtract tan tanh to true_divide double long int "
    "bool where detach clone".split()
).union(_OPERATORS)
# what computes each row from the row alone, along its last dimension
_BY_ROW = frozenset(["linear", "layer_norm"])


# -- losses ------------------------------------------------------------------------------------------------------------

_CLASS_LOSSES = ("cross_entropy", "nll_loss")
_ELEMENT_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss huber_loss"
).split()
_LOSSES = frozenset([*_CLASS_LOSSES, *_ELEMENT_LOSSES])


def _compute_loss(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute a loss of selected rows: classes of the others are ignored, elements of the others are left out."""
    reduction = kwargs.get("reduction", "mean")
    given: List[Any] = list(args)
    names = ("input", "target")
    pair = [kwargs.get(name, given[place] if place < len(given) else None) for place, name in enumerate(names)]
    known = {"input", "target", "reduction", "weight", "ignore_index", "label_smoothing", "pos_weight", "beta", "delta"}
    settings = {key: value for key, value in kwargs.items() if value is not None and key not in names}
    rows = next(value for value in pair if isinstance(value, MaskedRows))
    is_known = len(given) <= 2 and set(kwargs) - {"size_average", "reduce"} <= known and reduction in ("mean", "sum")
    if not is_known or not all(isinstance(value, MaskedRows) for value in pair):
        return _call_with_rows_read(func, args, kwargs)
    values, labels = (value.values for value in pair)  # type: ignore[union-attr]
    if func.__name__ in _CLASS_LOSSES:
        ignored = settings.get("ignore_index", -100)
        if labels.is_floating_point():
            return _call_with_rows_read(func, args, kwargs)
        return func(values, labels.masked_fill(~_widen(rows.mask, labels), ignored), **settings)
    settings.pop("reduction", None)
    if any(isinstance(value, torch.Tensor) and value.dim() for value in settings.values()):
        return _call_with_rows_read(func, args, kwargs)
    losses = rows.with_values(func(values, labels, **settings, reduction="none"))
    return _mean(losses) if reduction == "mean" else _sum(losses)


def _compute_ctc_loss(func: Callable[..., Any], rows: MaskedRows, args: Args, kwargs: Kwargs) -> Any:
    """Compute the loss of labels of which all that count were listed: in rows, those that count to the left."""
    order = torch.sort((~rows.index).to(torch.int32), dim=1, stable=True).indices
    labels = rows.filled(1).reshape(rows.index.shape).gather(1, order.to(torch.int64))
    given = [labels if value is rows else value for value in args]
    return func(*given, **{key: labels if value is rows else value for key, value in kwargs.items()})


# while a trace is made on torch 2.0, the class has another
_get_item = torch.Tensor.__getitem__


def _read_item(x: torch.Tensor, index: object) -> Any:
    return read_rows(_get_item, x, index)


def _read_selected(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return read_rows(torch.masked_select, x, mask) if mask.shape == x.shape else Fallback


# torch before 2.1 does not tell function modes of reads by an index
_ITEMS: Any = torch.Tensor.__getitem__ if read_version(torch.__version__) >= (2, 1) else "torch:Tensor.__getitem__"

SUBSTITUTES = (
    OperatorSubstitute("torch.Tensor.__getitem__", _ITEMS, _read_item),
    OperatorSubstitute("torch.masked_select", torch.masked_select, _read_selected),
    OperatorSubstitute("torch.masked_select", torch.Tensor.masked_select, _read_selected),
)
