"""Print modules with the blocks that they begin."""

from __future__ import annotations

import builtins

from torch import nn

from ..host_tensors import read_registry
from ..torch_insides.modules import read_forward_pre_hooks

__all__ = ["module_repr", "print"]


def module_repr(m: nn.Module) -> str:
    """Return torch's representation of the module `m`, each forward pre-hook's before the class name it belongs to."""
    lines = []
    extra = m.extra_repr()
    extra_lines = extra.split("\n") if extra else []
    for name, child in read_registry(m, "_modules").items():
        if child is not None:
            child_lines = module_repr(child).split("\n")
            lines.append(f"({name}): " + "\n".join([child_lines[0], *("  " + line for line in child_lines[1:])]))
    hooks = "".join(f"{hook!r} " for hook in read_forward_pre_hooks(m).values())
    name = hooks + type(m).__name__
    if len(extra_lines) == 1 and not lines:
        return f"{name}({extra_lines[0]})"
    if not extra_lines and not lines:
        return f"{name}()"
    return f"{name}(\n  " + "\n  ".join(extra_lines + lines) + "\n)"


def print(m: object) -> None:
    """Print `module_repr` of a module, and then the object itself."""
    if isinstance(m, nn.Module):
        builtins.print(module_repr(m))  # noqa: T201 - this is what the function is for
    builtins.print(m)  # noqa: T201
