"""Types of the user's own as arguments: registered once, for all models."""

from __future__ import annotations

from typing import Any, Optional

from ..capture import StructureAdapter, register_structure_adapter
from .errors import createPoptorchError

__all__ = ["registerCustomArgParser"]


def registerCustomArgParser(type: type, parser: Optional[Any]) -> None:
    """Let `parser`, an `ICustomArgParser`, find the tensors in values of `type`; None removes it."""
    if parser is not None and not isinstance(parser, StructureAdapter):
        raise createPoptorchError("arg_parser must inherit from ICustomArgParser")
    register_structure_adapter(type, parser)
