"""Values that a matrix varies (batch, precision, engine and the like), and the options that they become."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from porting.options import PortOptions

__all__ = ["COUNTS", "MATRIX_KEYS", "PRECISIONS", "Choices", "expand", "with_choices"]

PRECISIONS = ("float32", "bfloat16", "mixed", "float16")
"""Precisions of a port."""

COUNTS = ("batch", "accumulation", "replicas", "device_iterations", "threads")
"""Keys of a matrix whose values are numbers from 1 on."""

_OPTIONS = {
    **{key: key for key in ("precision", "engine", "accumulation", "replicas", "device_iterations")},
    "order": "computation_order",
}


@dataclass(frozen=True)
class Choices:
    """One cell's choices; None leaves the target's own.

    `batch` is the micro-batch: the rows that one run of `forward` sees. A call has micro-batch x accumulation x
    replicas x device iterations rows. `order` is the computation order.
    """

    batch: Optional[int] = None
    precision: Optional[str] = None
    engine: Optional[str] = None
    accumulation: Optional[int] = None
    replicas: Optional[int] = None
    device_iterations: Optional[int] = None
    threads: Optional[int] = None
    order: Optional[str] = None

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values."""
        return asdict(self)


MATRIX_KEYS: Tuple[str, ...] = tuple(field.name for field in fields(Choices))
"""What a matrix can vary."""


def expand(matrix: Mapping[str, Sequence[Any]], defaults: Optional[Choices] = None) -> Iterator[Choices]:
    """Make the choices of every cell: all combinations, the last key varying fastest.

    >>> [(cell.batch, cell.engine) for cell in expand({"batch": [8, 16], "engine": ["replay"]})]
    [(8, 'replay'), (16, 'replay')]
    """
    base = (defaults or Choices()).to_dict()
    for values in itertools.product(*matrix.values()):
        yield Choices(**{**base, **dict(zip(matrix, values))})


def with_choices(options: PortOptions, choices: Mapping[str, Any], *, cache_dir: Optional[str]) -> PortOptions:
    """Return `options` with what was chosen for a cell; raises OptionError P002 for values that they cannot have."""
    changes = {option: choices[key] for key, option in _OPTIONS.items() if choices.get(key) is not None}
    if cache_dir is not None:
        changes["cache_dir"] = cache_dir
    return options.replace(**changes)
