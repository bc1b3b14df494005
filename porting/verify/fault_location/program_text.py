"""Modules, functions, operators and tensors as Python text, for programs that show a difference alone."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.verify.fault_location.step_trace import TensorForm, ValueRecord

__all__ = ["write_call", "write_function", "write_module", "write_number", "write_tensor"]

_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
_LEFT_OUT = frozenset(["self", "device", "dtype", "size_average", "reduce", "args", "kwargs"])


def write_module(module: nn.Module, *, with_mode: bool = True) -> Optional[str]:
    """Return an expression that makes a module of torch with the settings of `module`; None where none is known.

    >>> write_module(nn.Linear(4, 2, bias=False))
    'nn.Linear(4, 2, bias=False)'
    """
    kind = type(module)
    if not kind.__module__.startswith("torch.nn."):
        return None
    suffix = ".eval()" if with_mode and not module.training else ""
    if isinstance(module, nn.Sequential):
        parts = [write_module(child, with_mode=False) for child in module]
        return None if None in parts else f"nn.Sequential({', '.join(map(str, parts))}){suffix}"
    arguments = _list_arguments(module)
    name = f"nn.{kind.__name__}" if getattr(nn, kind.__name__, None) is kind else ""
    return f"{name}({', '.join(arguments)}){suffix}" if name and arguments is not None else None


def _list_arguments(module: nn.Module) -> Optional[List[str]]:
    signature = inspect.signature(type(module).__init__).parameters
    named = {name: parameter.default for name, parameter in signature.items() if name not in _LEFT_OUT}
    if isinstance(module, nn.RNNBase):
        named = {name: inspect.Parameter.empty for name in _RECURRENT}
    arguments: List[str] = []
    is_positional = True
    for name, default in named.items():
        if not hasattr(module, name):
            if default is inspect.Parameter.empty:
                return None
            is_positional = False
            continue
        value = getattr(module, name)
        if name == "bias" and not isinstance(value, bool):
            value = value is not None
        text = write_number(value)
        if text is None:
            return None
        if default is not inspect.Parameter.empty and not isinstance(value, torch.Tensor) and value == default:
            is_positional = False
            continue
        is_needed = default is inspect.Parameter.empty
        arguments.append(text if is_positional and is_needed else f"{name}={text}")
    return arguments


def write_number(value: Any) -> Optional[str]:
    """Return the text of a number, word, type, or of a list or small tensor of them; None for anything else."""
    if isinstance(value, torch.Tensor):
        return f"torch.tensor({value.detach().tolist()})" if value.numel() <= 64 else None
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if isinstance(value, (list, tuple)):
        parts = [write_number(item) for item in value]
        if None in parts:
            return None
        comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
        text = f"{', '.join(map(str, parts))}{comma}"
        return f"({text})" if isinstance(value, tuple) else f"[{text}]"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    is_plain = value is None or isinstance(
        value, (bool, int, float, str, torch.dtype, torch.memory_format, torch.layout)
    )
    return repr(value) if is_plain else None


def write_tensor(form: TensorForm, *, classes: int = 1) -> str:
    """Return an expression that makes a random tensor of this shape; whole numbers are below `classes`.

    >>> write_tensor(TensorForm((2, 3), torch.float32))
    'torch.randn(2, 3)'
    """
    shape = ", ".join(map(str, form.shape))
    if form.dtype.is_floating_point:
        return f"torch.randn({shape or '()'})" + (f".to({form.dtype})" if form.dtype != torch.float32 else "")
    if form.dtype == torch.bool:
        return f"torch.rand({shape or '()'}) > 0.5"
    text = f"torch.randint({max(classes, 1)}, ({shape}{',' if len(form.shape) == 1 else ''}))"
    return text if form.dtype == torch.int64 else f"{text}.to({form.dtype})"


_KNOWN: Mapping[str, Any] = {"torch": torch, "nn": nn, "F": nn.functional}


def write_function(function: Any) -> Optional[str]:
    """Return the definition of a function that needs nothing but torch; None for one of which that is not known."""
    try:
        variables = inspect.getclosurevars(function)
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, ValueError):
        return None
    is_alone = not variables.nonlocals and all(_KNOWN.get(name) is value for name, value in variables.globals.items())
    return source.rstrip() if is_alone and source.startswith("def ") else None


def write_call(record: ValueRecord, forms: List[TensorForm]) -> Optional[str]:
    """Return a call of the operator of `record` with tensors `t[0]`, `t[1]`, ... of `forms`, which may become more."""
    taken: List[int] = []

    def write(value: Any) -> Optional[str]:
        if isinstance(value, TensorForm):
            free = [place for place, form in enumerate(forms) if form == value and place not in taken]
            if not free:
                forms.append(value)
            taken.append(free[0] if free else len(forms) - 1)
            return f"t[{taken[-1]}].clone()"
        if isinstance(value, (list, tuple)):
            parts = [write(item) for item in value]
            return None if None in parts else f"[{', '.join(map(str, parts))}]"
        return write_number(value)

    arguments = _write_all(write, record.args, record.kwargs)
    return None if arguments is None else f"torch.ops.{record.operator}({', '.join(arguments)})"


def _write_all(write: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[List[str]]:
    parts: List[Tuple[str, Optional[str]]] = [("", write(value)) for value in args]
    parts += [(f"{name}=", write(value)) for name, value in kwargs.items()]
    return None if any(text is None for _name, text in parts) else [f"{name}{text}" for name, text in parts]
