"""A tensor as the device prints it: nested brackets, a line for each row, elements of one width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, Sequence

import torch

__all__ = ["FLOAT_FORMATS", "PrintStyle", "tensor_text"]

FLOAT_FORMATS = {"auto": 0, "fixed": 1, "scientific": 2, "none": 3}

# Beyond these, fixed-point numbers would hide digits or be too long.
_LARGEST_FIXED = 1e8
_SMALLEST_FIXED = 1e-4
_LARGEST_RATIO = 1e3


@dataclass(frozen=True)
class PrintStyle:
    """How to print: `digits` counts those before and behind the point, lines are at most `max_line_width` wide.

    Tensors of more than `summarise_threshold` elements show `edge_items` at both ends of each dimension.
    """

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 80
    digits: int = 4
    float_format: int = FLOAT_FORMATS["auto"]
    separator: str = ", "
    open_bracket: str = "("
    close_bracket: str = ")"


def tensor_text(tensor: torch.Tensor, title: str, style: PrintStyle) -> str:
    """Return `title` and the values of `tensor`.

    >>> print(tensor_text(torch.tensor([[1.5, 2.0], [0.25, -1.0]]), "x", PrintStyle()))
    x: (
     ( 1.500,  2.000)
     ( 0.250, -1.000)
    )
    """
    tensor = tensor.detach()
    is_summarised = tensor.numel() > style.summarise_threshold
    shown = _edges(tensor, style.edge_items) if is_summarised else tensor
    cut = [is_summarised and size > 2 * style.edge_items for size in tensor.shape]
    values = shown.reshape(-1).tolist()
    texts = _integer_texts(values) if not tensor.dtype.is_floating_point else _float_texts(values, style)
    is_aligned = style.digits > 0 and style.float_format != FLOAT_FORMATS["none"]
    width = max((len(text) for text in texts), default=0) if is_aligned else 0
    aligned = iter([text.rjust(width) for text in texts])
    return f"{title}: {_nested(aligned, list(shown.shape), cut, 0, style)}"


def _edges(tensor: torch.Tensor, count: int) -> torch.Tensor:
    for dim, size in enumerate(tensor.shape):
        if size > 2 * count:
            tensor = torch.cat([tensor.narrow(dim, 0, count), tensor.narrow(dim, size - count, count)], dim)
    return tensor


def _integer_texts(values: Sequence[Any]) -> List[str]:
    return [str(int(value)) for value in values]


def _float_texts(values: Sequence[float], style: PrintStyle) -> List[str]:
    if style.digits == 0 or style.float_format == FLOAT_FORMATS["none"]:
        return [f"{value:g}" for value in values]
    sizes = [abs(value) for value in values if math.isfinite(value) and value != 0]
    if style.float_format == FLOAT_FORMATS["scientific"] or (
        style.float_format == FLOAT_FORMATS["auto"] and _needs_exponent(sizes)
    ):
        return [f"{value:.{style.digits - 1}e}" for value in values]
    integer_digits = len(str(int(max(sizes, default=0.0))))
    return [f"{value:.{max(style.digits - integer_digits, 1)}f}" for value in values]


def _needs_exponent(sizes: Sequence[float]) -> bool:
    if not sizes:
        return False
    largest, smallest = max(sizes), min(sizes)
    return largest >= _LARGEST_FIXED or smallest < _SMALLEST_FIXED or largest / smallest > _LARGEST_RATIO


def _nested(texts: Any, shape: List[int], cut: List[bool], level: int, style: PrintStyle) -> str:
    if not shape:
        return str(next(texts))
    if len(shape) == 1:
        return _row(_with_ellipsis([next(texts) for _ in range(shape[0])], cut[0]), level, style)
    rows = [_nested(texts, shape[1:], cut[1:], level + 1, style) for _ in range(shape[0])]
    lines = [" " * (level + 1) + row for row in _with_ellipsis(rows, cut[0])]
    return "\n".join([style.open_bracket, *lines, " " * level + style.close_bracket])


def _with_ellipsis(items: List[str], is_cut: bool) -> List[str]:
    middle = len(items) // 2
    return [*items[:middle], "...", *items[middle:]] if is_cut else items


def _row(elements: Sequence[str], level: int, style: PrintStyle) -> str:
    """Join the elements of a row; the caller indents its first line by `level`."""
    lines, line = [], " " * level + style.open_bracket
    for number, element in enumerate(elements):
        if number == 0:
            line += element
        elif len(line) + len(style.separator) + len(element) > style.max_line_width:
            lines.append(line + style.separator.rstrip())
            line = " " * (level + 2) + element
        else:
            line += style.separator + element
    return "\n".join([*lines, line + style.close_bracket])[level:]
