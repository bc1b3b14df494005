"""Choices of a measurement: what a cell varies (batch, precision, ...), and how both sides are timed."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from porting.options import PortOptions

__all__ = [
    "COUNTS",
    "MATRIX_KEYS",
    "NAMED_SETTINGS",
    "PRECISIONS",
    "BenchSettings",
    "Choices",
    "apply_choices",
    "expand",
]

PRECISIONS = ("float32", "bfloat16", "mixed", "float16")
"""Precisions of a port."""

NAMED_SETTINGS: Mapping[str, Tuple[str, ...]] = {
    "device": ("auto", "ipu", "sim"),
    "eager_precision": ("float32", "bfloat16", "float16"),
    "eager_memory_format": ("contiguous", "channels-last"),
    "eager_optimizer": ("fused", "default"),
}
"""Fields of `BenchSettings` whose values have names."""

COUNTS = ("batch", "accumulation", "replicas", "device_iterations", "threads", "layers")
"""Keys of a matrix whose values are numbers from 1 on."""

_OPTIONS = {
    **{key: key for key in ("precision", "engine", "accumulation", "replicas", "device_iterations")},
    "order": "computation_order",
}


@dataclass(frozen=True)
class Choices:
    """One cell's choices; None leaves the target's own.

    `batch` is the micro-batch: the rows that one run of `forward` sees. A call has micro-batch x accumulation x
    replicas x device iterations rows. `order` is the computation order. `layers` is what the function that makes the
    model is asked for.
    """

    batch: Optional[int] = None
    precision: Optional[str] = None
    engine: Optional[str] = None
    accumulation: Optional[int] = None
    replicas: Optional[int] = None
    device_iterations: Optional[int] = None
    threads: Optional[int] = None
    order: Optional[str] = None
    layers: Optional[int] = None


MATRIX_KEYS: Tuple[str, ...] = tuple(field.name for field in fields(Choices))
"""What a matrix can vary."""


@dataclass(frozen=True)
class BenchSettings:
    """Plain values only, so that settings can travel in a file.

    Both sides have `rounds` turns each, one after the other. A turn takes about `turn_seconds`, or `calls_per_turn`
    calls where that is given. `parity_steps` are compared before. `start_up_runs` fresh processes of each side are
    timed to the end of their first step, and `cold_starts` of the port that find no executable; 0 leaves that out.
    `limits` sets the steps against what this machine attains, and `growth` measures what calls take beyond their
    operators. With `curve`, the time to 1, 2, 5, ... steps is taken in
    `curve_runs` fresh processes of each side, as many steps as eager takes in `curve_seconds`. `eager_precision`,
    `eager_memory_format` and `eager_optimizer` ("fused", or torch's "default") are what the plain side uses. `threads`
    is torch's number of threads on both sides, None for torch's own choice.
    """

    rounds: int = 15
    turn_seconds: float = 0.2
    calls_per_turn: Optional[int] = None
    parity_steps: int = 20
    seed: int = 0
    threads: Optional[int] = None
    device: str = "auto"
    eager_precision: str = "float32"
    eager_memory_format: str = "contiguous"
    eager_optimizer: str = "fused"
    memory: bool = True
    data: bool = True
    limits: bool = True
    start_up_runs: int = 0
    cold_starts: int = 0
    growth: bool = False
    curve: bool = False
    curve_runs: int = 3
    curve_seconds: float = 20.0

    @property
    def of_eager(self) -> Dict[str, Any]:
        """What the plain side uses, as arguments of `EagerSide`."""
        return {
            "memory_format": self.eager_memory_format,
            "precision": self.eager_precision,
            "fused": self.eager_optimizer == "fused",
        }

    def quick(self) -> BenchSettings:
        """Return settings for a first look: fewer and shorter turns, and the steady state alone."""
        return replace(
            self,
            rounds=5,
            turn_seconds=0.05,
            memory=False,
            data=False,
            limits=False,
            start_up_runs=0,
            cold_starts=0,
            growth=False,
            curve=False,
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def expand(matrix: Mapping[str, Sequence[Any]], defaults: Optional[Choices] = None) -> Iterator[Choices]:
    """Make the choices of every cell: all combinations, the last key varying fastest.

    >>> [(cell.batch, cell.engine) for cell in expand({"batch": [8, 16], "engine": ["replay"]})]
    [(8, 'replay'), (16, 'replay')]
    """
    for values in itertools.product(*matrix.values()):
        yield replace(defaults or Choices(), **dict(zip(matrix, values)))


def apply_choices(options: PortOptions, choices: Mapping[str, Any], *, cache_dir: Optional[str]) -> PortOptions:
    """Return `options` with what was chosen for a cell; raises OptionError P002 for values that they cannot have."""
    changes = {option: choices[key] for key, option in _OPTIONS.items() if choices.get(key) is not None}
    if cache_dir is not None:
        changes["cache_dir"] = cache_dir
    return options.replace(**changes)
