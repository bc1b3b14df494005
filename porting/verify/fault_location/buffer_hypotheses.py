"""Explanations of other running statistics: how far they moved, compared with how far they should have."""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Optional

import torch
from torch import nn

__all__ = ["BufferExplanation", "explain_buffer"]

Tensors = Mapping[str, torch.Tensor]


class BufferExplanation(NamedTuple):
    """How a buffer moved in the port, in words; `code` does to a module called `ported` what the port does."""

    text: str
    code: str = ""


def explain_buffer(
    name: str, before: Tensors, plain: Tensors, ported: Tensors, module: Optional[nn.Module]
) -> BufferExplanation:
    """Say how the buffer `name` moved in the port, compared with plain PyTorch; the plain `module` has it."""
    old, one, other = (of[name].double() for of in (before, plain, ported))
    momentum: Any = getattr(module, "momentum", None)
    move, moved = one - old, other - old
    if not bool(moved.any()):
        return BufferExplanation(f"`{name}` is stale in the port: no step writes it, as in eval mode", "ported.eval()")
    if not bool(move.any()):
        words = f"`{name}` is written in the port, and not in plain PyTorch: train mode, where it should be eval mode"
        return BufferExplanation(words, "ported.train()")
    factor = float((move * moved).sum() / (move * move).sum())
    is_scaled = float((moved - factor * move).norm()) <= 1e-3 * float(moved.norm())
    if is_scaled and isinstance(momentum, float):
        if math.isclose(factor, 2 - momentum, rel_tol=2e-3):
            return BufferExplanation(f"`{name}` is updated twice in a step of the port")
        words = (
            f"`{name}` moves {factor:.4g} times as far as in plain PyTorch, as with a momentum of "
            f"{factor * momentum:.3g} in the place of {momentum:.3g}"
        )
        return BufferExplanation(words, f"ported.momentum = {factor * momentum:.6g}")
    if isinstance(momentum, float) and name.endswith("running_var"):
        batch, seen = (value - (1 - momentum) * old for value in (one, other))
        ratio = float((batch * seen).sum() / (batch * batch).sum())
        if float((seen - ratio * batch).norm()) <= 1e-3 * float(seen.norm()):
            words = f"`{name}` takes in a variance that is {ratio:.5g} times plain PyTorch's: it is divided by another"
            return BufferExplanation(f"{words} number of samples (n, or n - 1)")
    words = (
        f"`{name}` takes in statistics of other values, or of another number of micro-batches, than in plain PyTorch"
    )
    return BufferExplanation(words)
