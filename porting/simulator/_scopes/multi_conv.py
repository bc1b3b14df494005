"""Define `MultiConv`, convolutions that the device runs at the same time. On the CPU it has no effect."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union

import torch

from .._options_impl import require
from ..enums import MultiConvPlanType
from .graph_scopes import GraphScopes, change_scopes

__all__ = ["MultiConv"]

_PARTIALS_TYPES = {torch.float: 0, torch.half: 1}


class MultiConv:
    """Run the convolutions inside the context together; they must not depend on each other.

    Settings are given once for all convolutions, or as a list with one value for each. Setters return the object.

    >>> with MultiConv().availableMemoryProportions([0.4, 0.6]).cycleBackOff(0.3):
    ...     pass
    """

    def __init__(self) -> None:
        # arguments of the operator that ends it
        self._settings: Dict[str, Any] = {}

    def availableMemoryProportions(self, value: Optional[Union[float, Sequence[float]]]) -> MultiConv:
        """Set the share of memory for temporary data; AssertionError for anything but floats."""
        values = _find_values(value, float)
        require(value is None or values is not None, "Invalid available memory proportion!")
        self._settings["available_memory_proportions"] = values
        return self

    def partialsTypes(self, value: Union[torch.dtype, Sequence[torch.dtype]]) -> MultiConv:
        """Set the type of intermediate sums, `torch.float` or `torch.half`; `ValueError` for any other."""
        types: List[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(dtype, torch.dtype) and dtype in _PARTIALS_TYPES for dtype in types):
            raise ValueError("Invalid partials types. Expecting torch.float or torch.half")
        self._settings["partials_types"] = [_PARTIALS_TYPES[dtype] for dtype in types]
        return self

    def enableConvDithering(self, value: Optional[Union[bool, Sequence[bool]]]) -> MultiConv:
        """Spread the convolutions over varying tiles; raises `ValueError` for anything but booleans."""
        values = _find_values(value, bool)
        if value is not None and values is None:
            raise ValueError("value must be bool or list of bools")
        self._settings["enable_conv_dithering"] = values
        return self

    def planType(self, value: Optional[MultiConvPlanType]) -> MultiConv:
        """Choose whether the convolutions run in parallel; AssertionError for another type."""
        require(value is None or isinstance(value, MultiConvPlanType), "Invalid plan type!")
        # a plain number, because what is noted with operators goes into files
        self._settings["plan_type"] = None if value is None else int(value)
        return self

    def perConvReservedTiles(self, value: int) -> MultiConv:
        """Set how many tiles each convolution gets at least; AssertionError for another type."""
        require(isinstance(value, int), "Invalid number of reserved tiles per convolution!")
        self._settings["per_conv_reserved_tiles"] = value
        return self

    def cycleBackOff(self, value: float) -> MultiConv:
        """Set how much slower than alone a convolution may be, as a share; AssertionError for another type."""
        require(isinstance(value, float), "Invalid cycle back off!")
        self._settings["cycle_back_off"] = value
        return self

    def __enter__(self) -> None:
        change_scopes(GraphScopes.begin_multi_conv)

    def __exit__(self, *_exception: object) -> None:
        change_scopes(GraphScopes.end_multi_conv, **self._settings)


def _find_values(value: object, kind: Type[Any]) -> Optional[List[Any]]:
    """Return one value, or each of a list that has some, as a list; None if one is not of this type."""
    values: Tuple[Any, ...] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return list(values) if values and all(isinstance(item, kind) for item in values) else None
