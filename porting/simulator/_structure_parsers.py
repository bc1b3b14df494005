"""Types of the user's own as arguments: registered once, for all models."""

from __future__ import annotations

import abc
from typing import Any, Iterator, Optional

import torch

from ..structure import StructureAdapter, register_structure_adapter
from .errors import createPoptorchError

__all__ = ["ICustomArgParser", "registerCustomArgParser"]


class ICustomArgParser(StructureAdapter, abc.ABC):
    """Finds the tensors in values of a type, and builds such values from other tensors."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """Yield the tensors of `struct` in a fixed order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """Build an object like `original_structure`, which takes its tensors from `tensor_iterator` with `next`."""


def registerCustomArgParser(arg_data_type: type, arg_parser: Optional[Any]) -> None:
    """Let `arg_parser`, an `ICustomArgParser`, find the tensors in values of `arg_data_type`; None removes it."""
    if arg_parser is not None and not isinstance(arg_parser, ICustomArgParser):
        raise createPoptorchError("arg_parser must inherit from ICustomArgParser")
    register_structure_adapter(arg_data_type, arg_parser)
