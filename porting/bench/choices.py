"""These dataclasses say what is measured: `Choices` what varies from case to case, `BenchSettings` how it is timed.

The command line, benchmark files and child processes share them, so they hold plain values only.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from porting.options import PortOptions

__all__ = [
    "COUNTS",
    "EAGER_WAYS",
    "MATRIX_KEYS",
    "NAMED_SETTINGS",
    "NOT_ASKED_FOR",
    "PRECISIONS",
    "BenchSettings",
    "Choices",
    "apply_choices",
    "expand",
]

NOT_ASKED_FOR = "not asked for"
"""The reason why there is no figure that was left out on purpose."""

PRECISIONS = ("float32", "bfloat16", "mixed", "float16")
"""Precisions of a port."""

NAMED_SETTINGS: Mapping[str, Tuple[str, ...]] = {
    "device": ("auto", "ipu", "sim"),
    "eager_precision": ("float32", "bfloat16", "float16"),
    "eager_memory_format": ("contiguous", "channels-last"),
    "eager_optimizer": ("fused", "default"),
    "eager_compiler": ("none", "inductor"),
}
"""Fields of `BenchSettings` whose values have names."""

EAGER_WAYS: Mapping[str, Mapping[str, str]] = {
    "plain": {"eager_optimizer": "default"},
    "fused": {},
    "channels-last": {"eager_memory_format": "channels-last"},
    "compile": {"eager_compiler": "inductor"},
}
"""Ways to train without the port, by name: what they change in `BenchSettings` with the eager side's defaults."""

COUNTS = ("batch", "accumulation", "replicas", "device_iterations", "threads", "layers")
"""Keys of a matrix whose values are numbers from 1 on."""

_OPTIONS = {
    **{key: key for key in ("precision", "engine", "accumulation", "replicas", "device_iterations")},
    "order": "computation_order",
}


@dataclass(frozen=True)
class Choices:
    """One case's choices; None leaves the target's own.

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
    """How a case is measured: plain values only, so that settings can travel in a file.

    Both sides have `rounds` turns each, one after the other, of about `turn_seconds`, or of `calls_per_turn` calls if
    that is given. `parity_steps` are compared before. `threads` are torch's on all sides, None for torch's own choice.
    """

    rounds: int = 15
    turn_seconds: float = 0.2
    calls_per_turn: Optional[int] = None
    parity_steps: int = 20
    seed: int = 0
    threads: Optional[int] = None
    device: str = "auto"

    # what the plain side uses, see `NAMED_SETTINGS`; `against` names more of `EAGER_WAYS`, which take turns with both
    eager_precision: str = "float32"
    eager_memory_format: str = "contiguous"
    eager_optimizer: str = "fused"
    eager_compiler: str = "none"
    against: Tuple[str, ...] = ()

    # what else is measured: peak memory, the data path, the share of what this machine attains, copies into another
    # layout, and what a call takes beyond its operators
    memory: bool = True
    data: bool = True
    limits: bool = True
    layouts: bool = True
    growth: bool = False

    # fresh processes of each side to the end of the first step, and of the port without an executable on disk
    start_up_runs: int = 0
    cold_starts: int = 0

    # the time to 1, 2, 5, ... steps in fresh processes of each side, as many steps as eager takes in so many seconds
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
            "compiled": self.eager_compiler != "none",
        }

    def with_eager_way(self, way: str) -> BenchSettings:
        """Return settings whose plain side is one of `EAGER_WAYS`, in the same precision.

        >>> BenchSettings(eager_optimizer="default").with_eager_way("fused") == BenchSettings()
        True
        """
        defaults = {name: getattr(BenchSettings, name) for changes in EAGER_WAYS.values() for name in changes}
        return replace(self, **{**defaults, **EAGER_WAYS[way]})

    def quick(self) -> BenchSettings:
        """Return settings for a first look: fewer and shorter turns, and the steady state alone."""
        left_out: Dict[str, Any] = dict.fromkeys(("memory", "data", "limits", "layouts", "growth", "curve"), False)
        return replace(self, rounds=5, turn_seconds=0.05, start_up_runs=0, cold_starts=0, **left_out)

    def __post_init__(self) -> None:
        # a file has lists where there were tuples
        object.__setattr__(self, "against", tuple(self.against))

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "against": list(self.against)}


def expand(matrix: Mapping[str, Sequence[Any]], defaults: Optional[Choices] = None) -> Iterator[Choices]:
    """Make the choices of every case: all combinations, the last key varying fastest.

    >>> [(case.batch, case.engine) for case in expand({"batch": [8, 16], "engine": ["replay"]})]
    [(8, 'replay'), (16, 'replay')]
    """
    for values in itertools.product(*matrix.values()):
        yield replace(defaults or Choices(), **dict(zip(matrix, values)))


def apply_choices(options: PortOptions, choices: Mapping[str, Any], *, cache_dir: Optional[str]) -> PortOptions:
    """Return `options` with what was chosen for a case; raises OptionError P002 for values that they cannot have."""
    changes = {option: choices[key] for key, option in _OPTIONS.items() if choices.get(key) is not None}
    if cache_dir is not None:
        changes["cache_dir"] = cache_dir
    return options.replace(**changes)
