"""Implement `ipu_print_tensor`, which prints a value, and its gradient, each time that the device computes it."""

from __future__ import annotations

import math
import sys
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from .op_library import define_operator, require_argument, return_first

__all__ = ["FLOAT_FORMATS", "PrintStyle", "format_tensor", "ipu_print_tensor"]

FLOAT_FORMATS = {"auto": 0, "fixed": 1, "scientific": 2, "none": 3}

# Beyond these, fixed-point numbers would hide digits or be too long.
_LARGEST_FIXED = 1e8
_SMALLEST_FIXED = 1e-4
_LARGEST_RATIO = 1e3


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Return `tensor`; the device prints `title` and its values to stderr for every micro-batch that it runs.

    While training it also prints the gradient, as `<title>_gradient`, unless `print_gradient` is off. `float_format`
    is "auto", "fixed", "scientific" or "none"; `digits` counts those before and after the point. Tensors of more than
    `summarise_threshold` elements show `edge_items` at both ends of each dimension.

    Raises `poptorch.Error` for a value that is no tensor, KeyError for another float format.
    """
    require_argument(
        isinstance(tensor, torch.Tensor),
        "ipu print tensor must take a torch.tensor argument. To print several tensors, or a structure of them, call it "
        "for each.",
    )
    style = (summarise_threshold, edge_items, max_line_width, digits, FLOAT_FORMATS[float_format], separator)
    return torch.ops.poptorch.ipu_print_tensor(tensor, title, print_gradient, *style, open_bracket, close_bracket)


class PrintStyle(NamedTuple):
    """The settings of `ipu_print_tensor`, in the order of the operator's arguments."""

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 80
    digits: int = 4
    float_format: int = FLOAT_FORMATS["auto"]
    separator: str = ", "
    open_bracket: str = "("
    close_bracket: str = ")"


def format_tensor(tensor: torch.Tensor, title: str, style: PrintStyle) -> str:
    """Return `title` and the values of `tensor`: nested brackets, a line for each row, elements of one width.

    >>> print(format_tensor(torch.tensor([[1.5, 2.0], [0.25, -1.0]]), "x", PrintStyle()))
    x: (
     ( 1.500,  2.000)
     ( 0.250, -1.000)
    )
    """
    tensor = tensor.detach()
    is_summarised = tensor.numel() > style.summarise_threshold
    is_cut = [is_summarised and size > 2 * style.edge_items for size in tensor.shape]
    count = style.edge_items
    for dim, size in enumerate(tensor.shape):
        if is_cut[dim]:
            tensor = torch.cat([tensor.narrow(dim, 0, count), tensor.narrow(dim, size - count, count)], dim)
    values = tensor.reshape(-1).tolist()
    is_floating = tensor.dtype.is_floating_point
    texts = _list_floats(values, style) if is_floating else [str(int(value)) for value in values]
    is_aligned = style.digits > 0 and style.float_format != FLOAT_FORMATS["none"]
    width = max((len(text) for text in texts), default=0) if is_aligned else 0
    aligned = iter([text.rjust(width) for text in texts])
    return f"{title}: {_nest_texts(aligned, list(tensor.shape), is_cut, 0, style)}"


def _list_floats(values: Sequence[float], style: PrintStyle) -> List[str]:
    if style.digits == 0 or style.float_format == FLOAT_FORMATS["none"]:
        return [f"{value:g}" for value in values]
    sizes = [abs(value) for value in values if math.isfinite(value) and value != 0]
    largest, smallest = max(sizes, default=0.0), min(sizes, default=1.0)
    needs_exponent = (
        largest >= _LARGEST_FIXED or smallest < _SMALLEST_FIXED or largest / smallest > _LARGEST_RATIO
    ) and style.float_format == FLOAT_FORMATS["auto"]
    # one form for all elements: those of a printed tensor stand below each other
    if needs_exponent or style.float_format == FLOAT_FORMATS["scientific"]:
        return [f"{value:.{style.digits - 1}e}" for value in values]
    return [f"{value:.{max(style.digits - len(str(int(largest))), 1)}f}" for value in values]


def _nest_texts(texts: Iterator[str], shape: List[int], is_cut: List[bool], level: int, style: PrintStyle) -> str:
    """Put brackets round the next elements of `texts`; the caller indents the first line by `level`."""
    if not shape:
        return next(texts)
    items = [_nest_texts(texts, shape[1:], is_cut[1:], level + 1, style) for _ in range(shape[0])]
    if is_cut[0]:
        items.insert(len(items) // 2, "...")
    if len(shape) == 1:
        return _join_row(items, level, style)
    lines = [" " * (level + 1) + item for item in items]
    return "\n".join([style.open_bracket, *lines, " " * level + style.close_bracket])


def _join_row(elements: Sequence[str], level: int, style: PrintStyle) -> str:
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


# -- on the device -----------------------------------------------------------------------------------------------------


def _run_print(x: torch.Tensor, title: str, print_gradient: bool, *settings: Any) -> torch.Tensor:
    style = PrintStyle(*settings)
    _write_tensor(x, title, style)
    if print_gradient and x.requires_grad and torch.is_grad_enabled():
        return _PrintGradient.apply(x, f"{title}_gradient", style)
    return x


def _write_tensor(tensor: torch.Tensor, title: str, style: PrintStyle) -> None:
    # in one piece, or lines of several processes would mix
    sys.stderr.write(format_tensor(tensor, title, style) + "\n")
    sys.stderr.flush()


class _PrintGradient(torch.autograd.Function):
    """Passes a tensor on, and prints its gradient."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, title: str, style: PrintStyle) -> torch.Tensor:
        context.title, context.style = title, style
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        _write_tensor(gradient, context.title, context.style)
        return gradient, None, None


define_operator(
    "ipu_print_tensor(Tensor x, str title, bool print_gradient, int summarise_threshold, int edge_items, "
    "int max_line_width, int digits, int float_format, str separator, str open_bracket, str close_bracket) -> Tensor",
    return_first,
    run=_run_print,
)
