"""Try which numbers explain the port's, in one phase of a step: other labels, settings, shares and factors.

`hypotheses` makes its predicates of these.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.structure import map_tensors
from porting.support.host_state import keep_streams
from porting.verify import calls
from porting.verify.plain_runs import copy_training
from porting.verify.plain_training import MicroBatch, PlainTraining
from porting.verify.reference_loss import make_loss_function

__all__ = [
    "Case",
    "Fields",
    "Predicate",
    "count_rows",
    "find_clipping",
    "find_labels",
    "find_more_of",
    "find_shares",
    "find_steadiness",
    "get_rate",
    "gives",
    "is_multiple",
    "join_tensors",
    "times",
    "try_labels",
    "try_mode",
    "try_rows",
    "try_settings",
    "try_slots",
    "when",
]

Tensors = Mapping[str, torch.Tensor]
Numbers = Optional[torch.Tensor]
Fields = Optional[Mapping[str, Any]]
_Change = Callable[[torch.Tensor], torch.Tensor]

# of the difference, most of which has to be explained
_REST = 0.05
# what one tensor may be off where all together are explained; and the share of all below which one is rounding alone
_REST_OF_ONE, _NEGLIGIBLE = 3e-2, 1e-4
# further kept steps that are asked for a ratio: later ones are too far from where both sides were equal
_MOST_STEPS, _LEAST_STEPS = 3, 2


@dataclass(frozen=True)
class Case:
    """The numbers of one phase on both sides, by name, of which those of `names` differ, and the step's `evidence`.

    `tolerance` is how much of the port's numbers may stay unexplained: few numbers are soon near to others by chance.
    `path` is that of the module. Of an operator there are no numbers but the `fault`.
    """

    plain: Tensors = field(default_factory=dict)
    ported: Tensors = field(default_factory=dict)
    names: Sequence[str] = ()
    evidence: Any = None
    tolerance: float = 5e-3
    path: str = ""
    fault: Any = None

    @cached_property
    def sides(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """All numbers that differ, of plain PyTorch and of the port."""
        return join_tensors(self.plain, self.names), join_tensors(self.ported, self.names)

    @cached_property
    def factor(self) -> float:
        """How many times plain PyTorch's the port's numbers are, as near as one factor comes; NaN where none does."""
        plain, ported = self.sides
        size = float(plain @ plain)
        return float(plain @ ported) / size if size else math.nan

    def is_explained_by(self, numbers: torch.Tensor) -> bool:
        """Tell whether `numbers`, or the first ones alone, are the port's and not plain PyTorch's, in every tensor."""
        plain, ported = (side[: len(numbers)] for side in self.sides)
        rest, difference, size = ported - numbers, float((ported - plain).norm()), float(ported.norm())
        # what is not finite is explained by nothing, not even itself
        if not difference or not float(rest.norm()) <= min(self.tolerance * size, _REST * difference):
            return False
        if len(self.names) == 1:
            return True
        sizes = [self.plain[name].numel() for name in self.names]
        return all(
            float(off.norm()) <= max(_REST_OF_ONE * float(own.norm()), _NEGLIGIBLE * size)
            for off, own in zip(rest.split(sizes), ported.split(sizes))
        )


def join_tensors(tensors: Tensors, names: Sequence[str]) -> torch.Tensor:
    """Return the elements of several tensors in float64."""
    parts = [tensors[name].double().flatten() for name in names]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def fit(case: Case, columns: Sequence[Tensors], *, onto_plain: bool = False) -> Optional[Sequence[float]]:
    """Return how much of each of `columns` the port's numbers are, or with `onto_plain` what it has beyond plain's.

    None where they are no such sum.
    """
    if any(name not in column for column in columns for name in case.names):
        return None
    plain, ported = case.sides
    start = plain if onto_plain else torch.zeros_like(plain)
    matrix = torch.stack([join_tensors(column, case.names) for column in columns], 1)
    if not bool(matrix.any()) or not bool(matrix.isfinite().all() & ported.isfinite().all()):
        return None
    shares = torch.linalg.lstsq(matrix, (ported - start).unsqueeze(1)).solution.squeeze(1)
    return [float(share) for share in shares] if case.is_explained_by(start + matrix @ shares) else None


def find_steadiness(case: Case, kind: str) -> Optional[bool]:
    """Tell whether the port's tensors of a kind are the same factor times plain PyTorch's in other kept steps, too.

    Each tensor is asked; as both sides come apart on the way, near to the factor is enough. None where too few steps
    were kept.
    """
    kept = case.evidence.ratios.get(kind, {})
    steps = [step for step in sorted(kept) if step != case.evidence.first.step][:_MOST_STEPS]
    ratios = [kept[step][name] for step in steps for name in case.names if name in kept[step]]
    if len(steps) < _LEAST_STEPS or not ratios or not case.factor > 0:
        return None
    wanted = math.log(case.factor)
    return all(ratio > 0 and abs(math.log(ratio) - wanted) <= abs(wanted) / 2 for ratio in ratios)


# -- predicates --------------------------------------------------------------------------------------------------------


Predicate = Callable[[Case], Fields]
"""Tells a cause from a case: it returns what the words of the cause have in braces, or None."""


def when(holds: Callable[[Case], Any], find: Predicate = lambda case: {}) -> Predicate:
    """Ask a second predicate, of a case of which the first holds."""
    return lambda case: find(case) if holds(case) else None


def gives(make: Callable[[Case], Numbers]) -> Predicate:
    """Tell whether the port's numbers are those that `make` makes."""

    def find(case: Case) -> Fields:
        numbers = make(case)
        return {} if numbers is not None and case.is_explained_by(numbers) else None

    return find


def is_multiple(case: Case) -> bool:
    """Tell whether every tensor of the port's is the same factor times plain PyTorch's."""
    return case.is_explained_by(case.factor * case.sides[0])


def times(count: Callable[[Case], float]) -> Predicate:
    """Tell whether the port's numbers are a count times plain PyTorch's, or 1 / it, and no other steps deny it."""

    def find(case: Case) -> Fields:
        number = count(case)
        if number <= 1 or not is_multiple(case) or find_steadiness(case, "gradient") is False:
            return None
        parts = {"": number, "1 / ": 1 / number}
        found = [part for part, wanted in parts.items() if math.isclose(case.factor, wanted, rel_tol=1e-3)]
        return {"part": found[0]} if found else None

    return find


def find_clipping(case: Case) -> Fields:
    """Tell whether the gradients are smaller than plain PyTorch's, and their norm a round number."""
    norm = float(case.sides[1].norm())
    is_round = math.isclose(norm, float(f"{norm:.2g}"), rel_tol=1e-4)
    return {"norm": norm} if is_round and 0 < case.factor < 1 and is_multiple(case) else None


def find_shares(case: Case) -> Fields:
    """Tell whether the port's gradients are a sum of the micro-batches', in which some count otherwise."""
    parts, replicas = case.evidence.step.own_gradients, case.evidence.replicas
    zeros = {name: torch.zeros_like(value) for name, value in case.plain.items()}
    shares = fit(case, [{**zeros, **own} for own in parts]) if len(parts) > 1 else None
    counts = {number: share * len(parts) for number, share in enumerate(shares or ())}
    odd = {number: count for number, count in counts.items() if abs(count - 1) > 0.02}
    lost = [number for number, count in odd.items() if abs(count) < 0.02]
    of_replicas = sorted({number % replicas for number in lost})
    if replicas > 1 and lost and len(of_replicas) * (len(parts) // replicas) == len(lost):
        return {"odd": ", ".join(f"replica {replica}" for replica in of_replicas) + " are lost"}
    words = [f"micro-batch {number + 1} of {len(parts)}" for number in lost or odd]
    if not lost:
        words = [f"{name} {count:.3g} times" for name, count in zip(words, odd.values())]
    return {"odd": ", ".join(words) + (" are lost" if lost else "")} if odd else None


def get_rate(case: Case) -> float:
    """Return the learning rate of the plain optimizer's first group."""
    return float(case.evidence.plain.optimizer.param_groups[0]["lr"]) or math.nan


def find_more_of(choose: Callable[[Case], Mapping[str, torch.Tensor]]) -> Predicate:
    """Tell whether the updates have more of something, or less, and differ in nothing else."""

    def find(case: Case) -> Fields:
        tensors = choose(case)
        shares = fit(case, [tensors], onto_plain=True)
        if not shares:
            return None
        is_alone = len(case.names) < len(case.plain) and all(tensors[name].dim() <= 1 for name in case.names)
        more = -shares[0] / get_rate(case)
        words = f"{abs(more):.3g} {'more' if more > 0 else 'less'} than in plain PyTorch"
        return {"more": words, "alone": ", biases and norms alone" if is_alone else ""}

    return find


# -- other losses ------------------------------------------------------------------------------------------------------


def try_labels(change: _Change, is_whole: bool, case: Case) -> Numbers:
    """Return the losses with changed labels: of the whole step, or of each micro-batch where there are several."""
    micro_batches: Sequence[MicroBatch] = case.evidence.micro_batches
    found = [find_labels(case.evidence.plain, item) for item in micro_batches]
    labels = [one for one in found if one is not None and one.dim()]
    if len(labels) != len(micro_batches) or not (is_whole or len(labels) > 1):
        return None
    # what is no class cannot be shifted, and what has one dimension not in the second
    with suppress(RuntimeError, IndexError):
        new = change(torch.cat(labels)).split([len(one) for one in labels]) if is_whole else list(map(change, labels))
        exchanged = {id(one): other for one, other in zip(labels, new)}
        return _compute_losses(
            [map_tensors(lambda one: exchanged.get(id(one), one), item) for item in micro_batches], case
        )
    return None


def try_rows(rows: slice, case: Case) -> Numbers:
    """Return the losses of some samples of each micro-batch."""
    if count_rows(case) < 2:
        return None
    cut = [map_tensors(lambda one: one[rows] if one.dim() else one, item) for item in case.evidence.micro_batches]
    return _compute_losses(cut, case)


def try_mode(is_training: bool, case: Case) -> Numbers:
    """Return the losses in train or eval mode."""
    return _compute_losses(case.evidence.micro_batches, case, is_training)


def count_rows(case: Case) -> int:
    """Count the samples of a micro-batch."""
    return calls.count_rows(case.evidence.micro_batches[0])


def find_labels(training: PlainTraining, micro_batch: MicroBatch) -> Numbers:
    """Return the argument that `label` names, where it is one tensor."""
    args, kwargs = micro_batch
    label: Any = training.label[0] if isinstance(training.label, tuple) and training.label else training.label
    values: Any = kwargs if isinstance(label, str) else list(args) or list(kwargs.values())
    with suppress(LookupError, TypeError):
        return values[label] if isinstance(values[label], torch.Tensor) else None
    return None


def _compute_losses(micro_batches: Sequence[MicroBatch], case: Case, is_training: Optional[bool] = None) -> Numbers:
    evidence, own = case.evidence, copy_training(case.evidence.plain)
    if is_training is not None:
        own.model.train(is_training)
    loss_of = make_loss_function(own)
    with keep_streams(), torch.no_grad():
        torch.set_rng_state(evidence.random_state)
        # a trial may be one that the user's code refuses, in whatever way
        with suppress(Exception):
            return torch.stack([loss_of(*args, **kwargs).sum().double() for args, kwargs in micro_batches])
    return None


# -- other updates -----------------------------------------------------------------------------------------------------


def try_settings(changes: Mapping[str, Any], case: Case) -> Numbers:
    """Return the updates with other settings; of `betas` one may be None, and stays."""
    settings = case.evidence.plain.optimizer.param_groups[0]
    if not all(name in settings for name in changes):
        return None
    own = dict(changes)
    if "betas" in own:
        own["betas"] = tuple(old if new is None else new for old, new in zip(settings["betas"], own["betas"]))
    return _try_update(own, case.evidence.step.before.slots, case)


def try_slots(change: Callable[[str, torch.Tensor], Numbers], case: Case) -> Numbers:
    """Return the updates with another state of the optimizer; a slot that `change` makes None is lost."""
    slots = {
        name: {slot: new for slot, value in own.items() for new in [change(slot, value)] if new is not None}
        for name, own in case.evidence.step.before.slots.items()
    }
    return _try_update({}, slots, case) if any(case.evidence.step.before.slots.values()) else None


def _try_update(changes: Mapping[str, Any], slots: Mapping[str, Any], case: Case) -> Numbers:
    """Return the updates that torch's own optimizer makes; None where it cannot."""
    evidence = case.evidence
    weights = evidence.step.before.parameters
    names = {id(parameter): name for name, parameter in evidence.plain.model.named_parameters()}
    parameters = {name: torch.nn.Parameter(weights[name].clone()) for name in case.plain}
    groups: List[Any] = []
    for group in evidence.plain.optimizer.param_groups:
        held = [parameters[names[id(own)]] for own in group["params"] if names.get(id(own)) in parameters]
        groups.append({**group, **changes, "params": held})
    kind: Any = type(evidence.plain.optimizer)
    with suppress(KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError):
        optimizer = kind(groups, lr=groups[0]["lr"])
        for name, parameter in parameters.items():
            gradient = evidence.step.gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter).clone()
            optimizer.state[parameter] = {slot: value.clone() for slot, value in slots.get(name, {}).items()}
        optimizer.step()
        return join_tensors({name: own.detach() - weights[name] for name, own in parameters.items()}, case.names)
    return None
