"""PopTorch's names for taking nested values apart and putting them together."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List

import torch

from ..capture import flatten_tensors, rebuild

__all__ = ["flattenTensorStructure", "reconstructTensorStructure"]


def flattenTensorStructure(structure: Any, canonical: Any = None) -> List[torch.Tensor]:
    """List the tensors inside `structure`, depth first; dictionaries in the key order of `canonical`."""
    return flatten_tensors(structure, like=canonical)


def reconstructTensorStructure(
    structure: Any, values: Iterable[Any], filter_fn: Callable[[torch.Tensor], bool] = lambda _tensor: True
) -> Any:
    """Put `values` in the places of the tensors of `structure` for which `filter_fn` is true."""
    return rebuild(structure, values, replaces=filter_fn)
