"""`ipu_print_tensor`: prints a value, and its gradient, each time that the device computes it."""

from __future__ import annotations

import sys
from typing import Any, Tuple

import torch

from ...capture.device_operators import define_device_operator
from ..errors import createPoptorchError
from . import op_library  # noqa: F401 - defines the operator
from .tensor_text import FLOAT_FORMATS, PrintStyle, tensor_text

__all__ = ["ipu_print_tensor"]


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
    is "auto", "fixed", "scientific" or "none"; `digits` counts those before and behind the point. Tensors of more than
    `summarise_threshold` elements show `edge_items` at both ends of each dimension.

    Raises `poptorch.Error` for what is no tensor, KeyError for another float format.
    """
    if not isinstance(tensor, torch.Tensor):
        raise createPoptorchError(
            "ipu print tensor must take a torch.tensor argument. To print several tensors, or a structure of them, "
            "call it for each."
        )
    return torch.ops.poptorch.ipu_print_tensor(
        tensor,
        title,
        print_gradient,
        summarise_threshold,
        edge_items,
        max_line_width,
        digits,
        FLOAT_FORMATS[float_format],
        separator,
        open_bracket,
        close_bracket,
    )


def _run_print(x: torch.Tensor, title: str, print_gradient: bool, *style: Any) -> torch.Tensor:
    how = PrintStyle(*style)
    _write(x, title, how)
    if print_gradient and x.requires_grad and torch.is_grad_enabled():
        return _PrintGradient.apply(x, f"{title}_gradient", how)
    return x


def _write(tensor: torch.Tensor, title: str, style: PrintStyle) -> None:
    sys.stderr.write(tensor_text(tensor, title, style) + "\n")
    sys.stderr.flush()


class _PrintGradient(torch.autograd.Function):
    """Passes a tensor on, and prints the gradient that comes back."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, title: str, style: PrintStyle) -> torch.Tensor:
        context.title, context.style = title, style
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        _write(gradient, context.title, context.style)
        return gradient, None, None


define_device_operator(torch.ops.poptorch.ipu_print_tensor.default, run=_run_print)
