"""Define PopTorch's operator library `torch.ops.poptorch`, to which each module of this package adds its operators."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import torch

from ...capture.device_operators import define_device_operator
from ...torch_insides.operators import has_kernel_of_key
from ..errors import createPoptorchError

__all__ = ["copy_list", "define_operator", "do_nothing", "require_argument", "return_first"]


def define_operator(schema: str, kernel: Callable[..., Any], *, is_random: bool = False, **meaning: Any) -> None:
    """Define an operator with its CPU kernel; `meaning` is what `define_device_operator` takes.

    `is_random` means that it may draw random numbers on the device. An existing operator is kept: the vendor's package
    has the same library, and may be in this process too.
    """
    name = schema.partition("(")[0]
    namespace: Any = torch.ops.poptorch
    # It outlives the modules of this package, which may be imported anew: a library takes its operators with it.
    if not hasattr(namespace, "_porting_library"):
        namespace._porting_library = torch.library.Library("poptorch", "FRAGMENT")
    # the vendor's schema counts where it is there: two of one name would be an error
    if not hasattr(namespace, name):
        tags = (torch.Tag.nondeterministic_seeded,) if is_random else ()
        namespace._porting_library.define(schema, tags=tags)
    # without this kernel the tensors of a capture, which have no values, could not go through an operator
    if not has_kernel_of_key(f"poptorch::{name}", "CompositeImplicitAutograd"):
        namespace._porting_library.impl(name, kernel, "CompositeImplicitAutograd")
    if meaning:
        define_device_operator(getattr(namespace, name).default, **meaning)


def require_argument(is_right: bool, message: str) -> None:
    """Raise the `poptorch.Error` with which PopTorch refuses an argument, unless it is right."""
    if not is_right:
        raise createPoptorchError(message)


def return_first(x: torch.Tensor, *_settings: object, **_named_settings: object) -> torch.Tensor:
    """Return the first argument: this is the CPU kernel of operators that only tell the device how to compute."""
    return x


def copy_list(tensors: Sequence[torch.Tensor], *_settings: object) -> List[torch.Tensor]:
    """Return the tensors of the first argument: this is the CPU kernel of the ends of loops, branches and calls."""
    return list(tensors)


def do_nothing(*_args: object) -> None:
    """Return nothing: this is the CPU kernel of marks, which have an effect only while a model is traced."""
