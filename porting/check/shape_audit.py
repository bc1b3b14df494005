"""The shapes that an epoch of batches has: how many executables they need, what padding costs, the best buckets.

A static graph takes one shape, so that every other one is another executable to compile. Sizes that vary together, as
the lengths of a sentence and of its mask, are one *length*; padding it to a few buckets trades executables for work on
padding. The rows of a batch are no such length: a short last batch is padded or dropped as a whole.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from porting.api.batch import BatchSignature
from porting.buckets import Buckets, choose_buckets
from porting.diagnostics import align_columns
from porting.structure import flatten_tensors, make_call_arguments

__all__ = ["BucketChoice", "ShapeAudit", "ShapeCounter", "VaryingLength"]

Shapes = Tuple[Tuple[int, ...], ...]

# The search for buckets goes through all pairs of lengths that occur.
_MOST_LENGTHS = 256
# with more lengths that vary on their own, padding to buckets needs a model of the data
_MOST_VARYING = 3


@dataclass(frozen=True)
class VaryingLength:
    """A size that differs between batches: the tensors and dimensions that have it, and each batch's value.

    `dimensions` are (tensor, dimension), counted from 0 among the tensors of a batch.
    """

    dimensions: Tuple[Tuple[int, int], ...]
    values: Tuple[int, ...]

    @property
    def text(self) -> str:
        """Its range and where it stands, for people."""
        where = ", ".join(f"dimension {dimension} of tensor {tensor}" for tensor, dimension in self.dimensions)
        return f"{min(self.values)} to {max(self.values)} ({where})"


@dataclass(frozen=True)
class BucketChoice:
    """Buckets for each varying length, what they cost, and when the next executable would have paid for itself.

    `padding_share` is the part of all computed elements that is padding, from 0 to 1. `break_even_steps` is how many
    steps it takes until the time that the executables beyond the first choice's save is the time to compile them,
    infinite where they save nothing. Where the times are not known it is for an executable that compiles in the time
    of one step, so that it grows with the ratio of the two.
    """

    buckets: Tuple[Buckets, ...]
    num_executables: int
    padding_share: float
    break_even_steps: float = 0.0


@dataclass(frozen=True)
class ShapeAudit:
    """The signatures of an epoch: how many batches have each, the lengths that vary, and buckets for them.

    A signature is what an executable is made for: shapes and types of tensors, and all other values.
    """

    counts: Mapping[str, int]
    lengths: Tuple[VaryingLength, ...]
    choices: Tuple[BucketChoice, ...] = ()
    is_timed: bool = True
    """Whether the times of steps and of compiling were given."""

    @property
    def num_executables(self) -> int:
        """How many executables the epoch needs as it is."""
        return len(self.counts)

    def __str__(self) -> str:
        """Say what buckets there are and what each number of them costs, as a table."""
        rows = [("executables", "padding", "pays after", "buckets")]
        for choice in self.choices:
            lengths = "; ".join(" ".join(map(str, buckets.lengths)) for buckets in choice.buckets)
            rows.append((str(choice.num_executables), f"{choice.padding_share:.1%}", self._say_steps(choice), lengths))
        table = "\n".join(align_columns(rows, right=range(3)))
        is_asked = any(choice.break_even_steps for choice in self.choices) and not self.is_timed
        return f"{table}\n(r: the time to compile an executable, divided by the time of a step)" if is_asked else table

    def _say_steps(self, choice: BucketChoice) -> str:
        steps = choice.break_even_steps
        if math.isinf(steps):
            return "never"
        if not steps:
            return "at once"
        return f"{steps:,.0f} steps" if self.is_timed else f"{steps:.3g} r steps"


class ShapeCounter:
    """Counts the shapes of batches as they come; keeps no tensor."""

    def __init__(self) -> None:
        self._batches: List[Shapes] = []
        self._signatures: List[str] = []

    def add(self, batch: object) -> int:
        """Count a batch, arguments or a dictionary; return the rows of its first tensor that has any, or 0."""
        shapes = tuple(tuple(tensor.shape) for tensor in flatten_tensors(batch))
        self._batches.append(shapes)
        self._signatures.append(str(BatchSignature(*make_call_arguments(batch))))
        return _count_rows(shapes)

    def summarise(
        self,
        *,
        max_executables: int = 8,
        compile_seconds: Optional[float] = None,
        step_seconds: Optional[float] = None,
    ) -> ShapeAudit:
        """Return the shapes that occurred, and the best buckets for 1, 2, 4, ... up to `max_executables` executables.

        `compile_seconds` is what one executable takes to compile and `step_seconds` what a batch padded to the longest
        takes; each choice says after how many steps it has paid for itself. Work is taken to grow with the
        number of elements of all tensors with a varying length.
        """
        # of batches of another number of tensors nothing can be put side by side
        num_compiled = len(self._batches) - self._has_rest()
        compiled = self._batches[:num_compiled]
        usual = Counter(map(len, compiled)).most_common(1)
        batches = [shapes for shapes in compiled if len(shapes) == usual[0][0]] if usual else []
        lengths = _list_lengths(batches)
        choices: List[BucketChoice] = []
        if 0 < len(lengths) <= _MOST_VARYING:
            budgets = {*(2**power for power in range(max_executables.bit_length())), max_executables}
            choices = [_choose_lengths(lengths, batches, budget) for budget in sorted(budgets)]
            # those that need more executables and save nothing are left out
            least = itertools.accumulate((choice.padding_share for choice in choices), min, initial=math.inf)
            choices = [choice for choice, share in zip(choices, least) if choice.padding_share < share]
        is_timed = compile_seconds is not None and step_seconds is not None
        ratio = compile_seconds / step_seconds if compile_seconds is not None and step_seconds else 1.0
        timed = tuple(_add_break_even(choices, ratio)) if choices else ()
        return ShapeAudit(Counter(self._signatures[:num_compiled]), lengths, timed, is_timed)

    def _has_rest(self) -> bool:
        """Tell whether the last batch is a short one, which is padded or dropped, never compiled for."""
        rows = [_count_rows(shapes) for shapes in self._batches]
        return len(rows) > 1 and rows[-1] < max(rows)


def _count_rows(shapes: Shapes) -> int:
    return next((shape[0] for shape in shapes if shape), 0)


def _list_lengths(batches: Sequence[Shapes]) -> Tuple[VaryingLength, ...]:
    """List the dimensions that vary between batches, those that vary together as one; rows are left out."""
    if len(batches) < 2:
        return ()
    together: Dict[Tuple[int, ...], List[Tuple[int, int]]] = {}
    rows = tuple(map(_count_rows, batches))
    for tensor, shapes in enumerate(zip(*batches)):
        if len({len(shape) for shape in shapes}) > 1:
            continue
        for dimension, values in enumerate(zip(*shapes)):
            if len(set(values)) > 1 and values != rows:
                together.setdefault(values, []).append((tensor, dimension))
    return tuple(VaryingLength(tuple(places), values) for values, places in together.items())


def _choose_lengths(lengths: Sequence[VaryingLength], batches: Sequence[Shapes], budget: int) -> BucketChoice:
    """Choose buckets for all lengths, of which no more than `budget` combinations occur, with the least padding."""
    choices: List[BucketChoice] = []
    rounded = [_round_up(length.values) for length in lengths]
    # all small numbers of buckets, and the budget itself
    tried = sorted({*range(1, min(budget, 8) + 1), budget})
    for numbers in itertools.product(tried, repeat=len(lengths)):
        buckets = tuple(choose_buckets(values, number) for values, number in zip(rounded, numbers))
        padded = list(zip(*([one.bucket_of(v) for v in values] for one, values in zip(buckets, rounded))))
        if len(set(padded)) <= budget:
            choices.append(BucketChoice(buckets, len(set(padded)), _find_padding(lengths, batches, padded)))
    # one bucket for each length is one combination
    return min(choices, key=lambda choice: choice.padding_share)


def _round_up(values: Sequence[int]) -> List[int]:
    """Round lengths up to multiples, so that not too many different ones are left."""
    step = 1
    while len({-(-value // step) for value in values}) > _MOST_LENGTHS:
        step *= 2
    return [max(1, -(-value // step) * step) for value in values]


def _find_padding(
    lengths: Sequence[VaryingLength], batches: Sequence[Shapes], padded: Sequence[Tuple[int, ...]]
) -> float:
    """Return the share of padding among all elements of the tensors that have a varying length."""
    number_of = {place: number for number, length in enumerate(lengths) for place in length.dimensions}
    tensors = sorted({tensor for tensor, _dimension in number_of})
    used = computed = 0
    for shapes, sizes in zip(batches, padded):
        for tensor in tensors:
            shape = shapes[tensor]
            used += math.prod(shape)
            computed += math.prod(
                sizes[number_of[tensor, dimension]] if (tensor, dimension) in number_of else size
                for dimension, size in enumerate(shape)
            )
    return 1 - used / computed if computed else 0.0


def _add_break_even(choices: Sequence[BucketChoice], ratio: float) -> Iterator[BucketChoice]:
    """Say of each choice after how many steps it has paid for its executables, compared with the first choice.

    `ratio` is the time to compile an executable, divided by the time of a step.
    """
    first = choices[0]
    for choice in choices:
        # elements that are computed are those that are used, divided by their share
        saved = 1 - (1 - first.padding_share) / (1 - choice.padding_share)
        spent = (choice.num_executables - first.num_executables) * ratio
        steps = 0.0 if not spent else spent / saved if saved > 0 else math.inf
        yield replace(choice, break_even_steps=steps)
