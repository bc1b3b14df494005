"""Compare two observed programs bit by bit: what each step was made of, and what it has left.

Both are plain ones, observed with digests; of a converted program this is what it does without a device.
"""

from __future__ import annotations

import math
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from porting.diagnostics import say_number
from porting.verify.observation import Observation, ObservedTraining
from porting.verify.program_comparison import match_trainings, name_training, rename_owner
from porting.verify.records import KINDS

__all__ = ["Difference", "count_compared", "find_difference"]

_KEPT = ("gradient", "optimizer state", "buffer", "parameter", "evaluation")


class Difference(NamedTuple):
    """The first thing that is another one in two programs, and how."""

    step: int
    kind: str
    name: str
    note: str

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}` in step {self.step}: {self.note}"


def find_difference(plain: Observation, other: Observation, *, num_steps: int) -> Optional[Difference]:
    """Find what differs first in the first steps of both: in the earliest step, what others follow from."""
    if len(plain.trainings) != len(other.trainings):
        counts = [say_number(len(one.trainings), "optimizer") for one in (plain, other)]
        return Difference(1, "setting", "optimizers", f"{counts[0]} make steps in the original, {counts[1]} here")
    found: List[Difference] = []
    for number, (ours, theirs) in enumerate(zip(plain.trainings, other.trainings)):
        prefix = name_training(number)
        differences = _iter_differences(ours, theirs, num_steps)
        found += [one._replace(name=prefix + one.name) for one in differences]
    return min(found, key=lambda one: (one.step, KINDS.index(one.kind)), default=None)


def count_compared(plain: Observation, other: Observation, *, num_steps: int) -> Dict[str, int]:
    """Count by kind what both have, and is compared bit by bit."""
    counts: Dict[str, int] = {}
    for ours, theirs in zip(plain.trainings, other.trainings):
        for kind, _step, names in _iter_digests(ours, theirs, num_steps):
            counts[kind] = counts.get(kind, 0) + len(names)
        known = [losses for step, losses in ours.record.losses.items() if step <= num_steps]
        counts["loss"] = counts.get("loss", 0) + sum(map(len, known))
    return counts


def _iter_differences(ours: ObservedTraining, theirs: ObservedTraining, num_steps: int) -> Iterator[Difference]:
    made = [min(training.record.num_steps, num_steps) for training in (ours, theirs)]
    if made[0] != made[1]:
        yield Difference(1 + min(made), "setting", "steps", f"{made[0]} in the original, {made[1]} here")
    for step in range(1, 1 + min(made)):
        yield from _compare_numbers("loss", step, ours.record.losses[step], theirs.record.losses[step])
        yield from _compare_numbers("learning rate", step, ours.record.rates[step], theirs.record.rates[step])
    for kind, step, pairs in _iter_digests(ours, theirs, min(made)):
        for name, (one, another) in pairs.items():
            if one != another:
                yield Difference(step, kind, name, _say_difference(ours, kind, step, name, one, another))


def _compare_numbers(kind: str, step: int, ours: Sequence[float], theirs: Sequence[float]) -> Iterator[Difference]:
    for number, (one, another) in enumerate(zip(ours, theirs)):
        if one != another and not (math.isnan(one) and math.isnan(another)):
            yield Difference(step, kind, f"{kind} {number}", f"{one!r} in the original, {another!r} here")
    if len(ours) != len(theirs):
        yield Difference(step, kind, f"{kind}s", f"{len(ours)} in the original, {len(theirs)} here")


def _iter_digests(
    ours: ObservedTraining, theirs: ObservedTraining, num_steps: int
) -> Iterator[Tuple[str, int, Dict[str, Tuple[str, str]]]]:
    """Iterate over the digests of both by kind and step; of outputs, those that are in both are paired first."""
    names = match_trainings(ours, theirs)
    for (kind, step), own in ours.record.digests.items():
        found = theirs.record.digests.get((kind, step), {})
        if step > num_steps:
            continue
        if kind == "output":
            yield kind, step, _pair_outputs(own, found)
        elif kind in _KEPT and (found or kind != "evaluation"):
            renamed = {rename_owner(name, names): digest for name, digest in found.items()}
            every = {**own, **renamed}
            yield kind, step, {name: (own.get(name, ""), renamed.get(name, "")) for name in every}


def _pair_outputs(ours: Dict[str, str], theirs: Dict[str, str]) -> Dict[str, Tuple[str, str]]:
    """Pair outputs by their form: a model that computes its loss, too, returns others besides."""
    left, pairs = list(theirs.values()), {}
    for name, digest in ours.items():
        like = [other for other in left if other.rpartition(" ")[0] == digest.rpartition(" ")[0]]
        if like:
            other = digest if digest in like else like[0]
            left.remove(other)
            pairs[name] = digest, other
    return pairs


def _say_difference(training: ObservedTraining, kind: str, step: int, name: str, one: str, another: str) -> str:
    if not one or not another:
        return f"only {'the original' if one else 'the converted program'} has it"
    forms = [digest.rpartition(" ")[0] for digest in (one, another)]
    if forms[0] != forms[1]:
        return f"{forms[0]} in the original, {forms[1]} here"
    sketch = training.record.sketches[kind, step].get(name)
    return "not bit by bit the same" + ("" if sketch is None else f", of size {sketch.norm:.1e}")
