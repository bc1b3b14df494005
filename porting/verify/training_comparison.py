"""The result of comparing two trainings: for each kind of number the worst difference, its name and step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import torch

from porting.comparison import Difference, Tolerance
from porting.comparison.tensors import largest_distance, largest_magnitude
from porting.diagnostics import PortingError, say_number

__all__ = ["KINDS", "KindDifferences", "TrainingComparison"]

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "loss": "forward or the loss differ: labels, the loss's reduction, train or eval mode, the order of samples",
        "gradient": "what is differentiated differs: a frozen layer, `reduction=` of the options, the loss of a part",
        "update": "the optimizers differ: learning rate, weight decay, momentum, parameter groups, clipping",
        "parameter": "the optimizers differ: learning rate, weight decay, momentum, parameter groups, clipping",
        "buffer": "statistics differ: BatchNorm's momentum, its mode, the size of micro-batches",
        "optimizer state": "the optimizers differ: momentum, betas, parameter groups",
    }
)
"""What is compared, in the order in which a fault spreads, and where a fault lies that begins there."""

_FACTS = "name step largest scale relative allowed note"
# of a difference: how large it is, its scale, what is allowed, a note
_Measured = Tuple[float, float, float, str]


@dataclass(frozen=True)
class KindDifferences:
    """All comparisons of one kind: how many, the worst one, and the first one that is not allowed."""

    kind: str
    num_compared: int
    worst: Optional[Difference]
    first: Optional[Difference]

    @property
    def holds(self) -> bool:
        """Whether all of them are allowed."""
        return self.first is None


@dataclass(frozen=True)
class TrainingComparison:
    """Whether a port trains as plain PyTorch does; `str()` is a table, `check()` raises where it does not."""

    num_calls: int
    num_steps: int
    relative: float
    absolute: float
    kinds: Tuple[KindDifferences, ...]

    @property
    def holds(self) -> bool:
        """Whether everything that was compared is equal within the tolerance."""
        return self.first is None

    @property
    def first(self) -> Optional[Difference]:
        """The difference where it begins: that of the earliest step, and there of the first kind of `KINDS`."""
        found = [kind.first for kind in self.kinds if kind.first is not None]
        return min(found, key=lambda difference: difference.step) if found else None

    def check(self) -> TrainingComparison:
        """Return this comparison if it holds; raise PortingError V001 with the worst differences otherwise."""
        first = self.first
        if first is None:
            return self
        others = [kind.worst for kind in self.kinds if kind.worst is not None and not kind.worst.holds]
        raise PortingError.at_caller(
            "V001",
            message=f"in step {first.step} the {first.kind} `{first.name}` is not that of plain PyTorch",
            notes=(
                f"there {_describe_difference(first)}",
                *(f"worst {other.kind}: {_describe_difference(other, True)}" for other in others),
            ),
            help=KINDS[first.kind],
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values."""
        return {
            **_list_values(self, "holds num_calls num_steps relative absolute"),
            "kinds": [
                {
                    **_list_values(kind, "kind num_compared holds"),
                    **{name: _list_values(getattr(kind, name), _FACTS) for name in ("worst", "first")},
                }
                for kind in self.kinds
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self._list_lines())

    def _list_lines(self) -> Iterator[str]:
        word = "equal" if self.holds else "DIFFERENT"
        steps = say_number(self.num_steps, "optimizer step")
        yield f"plain PyTorch and the port: {word} in {steps} (relative {self.relative:g}, absolute {self.absolute:g})"
        yield ""
        yield f"        {'':<16}{'compared':>8}  {'worst':>8}  in step  of"
        for kind in self.kinds:
            verdict = "ok    " if kind.holds else "FAILED"
            yield f"{verdict}  {kind.kind:<16}{kind.num_compared:>8}  {_describe_worst(kind.worst)}"
        if self.first is not None:
            yield ""
            yield f"it begins in step {self.first.step} with the {self.first.kind} `{self.first.name}`:"
            yield f"{KINDS[self.first.kind]}"


class Differences:
    """Collects differences while two trainings run: of each kind the worst, and the first that is not allowed."""

    def __init__(self, tolerance: Tolerance) -> None:
        """Begin with nothing compared."""
        self.tolerance = tolerance
        self._kinds: Dict[str, KindDifferences] = {}

    def compare(
        self,
        kind: str,
        step: int,
        plain: Mapping[str, torch.Tensor],
        ported: Mapping[str, torch.Tensor],
        floors: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Compare tensors by name; `floors` are differences that are rounding, whatever the tolerance says.

        What only one side has is a difference, unless it is zero there.
        """
        for name in {**plain, **ported}:
            one, other = plain.get(name), ported.get(name)
            if one is None or other is None:
                measured = _measure_one_side(one, other)
            else:
                measured = self._measure_pair(one.detach().double(), other.detach().double(), floors.get(name))
            difference = Difference(kind, name, step, *measured)
            before = self._kinds.get(kind, KindDifferences(kind, 0, None, None))
            is_worse = before.worst is None or difference.severity > before.worst.severity
            first = difference if before.first is None and not difference.holds else before.first
            worst = difference if is_worse else before.worst
            self._kinds[kind] = KindDifferences(kind, before.num_compared + 1, worst, first)

    def summarise(self, *, num_calls: int, num_steps: int) -> TrainingComparison:
        """Return what was found."""
        kinds = tuple(self._kinds[kind] for kind in KINDS if kind in self._kinds)
        return TrainingComparison(num_calls, num_steps, self.tolerance.relative, self.tolerance.absolute, kinds)

    def _measure_pair(self, one: torch.Tensor, other: torch.Tensor, floor: Optional[float]) -> _Measured:
        if one.shape != other.shape:
            note = f"shape {list(other.shape)} in the port, {list(one.shape)} in plain PyTorch"
            return math.inf, 1.0, 0.0, note
        scale = max(largest_magnitude(one), largest_magnitude(other))
        tolerance = self.tolerance if floor is None else Tolerance(self.tolerance.relative, floor)
        allowed = tolerance.allowed_at(scale)
        return largest_distance(one, other), scale, allowed if math.isfinite(allowed) else 0.0, ""


def _measure_one_side(plain: Optional[torch.Tensor], ported: Optional[torch.Tensor]) -> _Measured:
    present = plain if ported is None else ported
    assert present is not None
    if not present.any():
        return 0.0, 0.0, 0.0, ""
    note = f"only {'plain PyTorch' if ported is None else 'the port'} has it"
    return math.inf, largest_magnitude(present.detach().double()), 0.0, note


def _describe_difference(difference: Difference, with_name: bool = False) -> str:
    subject = f"`{difference.name}` in step {difference.step}, " if with_name else ""
    if difference.note:
        return f"{subject}{difference.note}"
    return (
        f"{subject}largest difference {difference.largest:.1e} of {difference.scale:.1e} "
        f"(relative {difference.relative:.1e}, allowed {difference.allowed:.1e})"
    )


def _describe_worst(difference: Optional[Difference]) -> str:
    if difference is None:
        return ""
    note = f" ({difference.note})" if difference.note else ""
    value = "missing" if difference.note.startswith("only") else f"{difference.relative:.1e}"
    return f"{value:>8}  {difference.step:>7}  {difference.name}{note}"


def _list_values(item: Any, names: str) -> Any:
    return None if item is None else {name: getattr(item, name) for name in names.split()}
