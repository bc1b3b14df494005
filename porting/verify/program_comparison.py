"""Compare two observed programs: trainings in their order, parameters by the ends of their names.

`program_proof` certifies the result.
"""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Iterator, Mapping, Sequence

import torch

from porting.comparison.sketches import distance_of_sketches
from porting.diagnostics import say_number
from porting.verify.certificate import Measured
from porting.verify.judgement import Judgement, describe_form, list_outside
from porting.verify.noise_band import describe_repetition
from porting.verify.observation import Observation, ObservedTraining
from porting.verify.records import Record
from porting.verify.runs import Runs

__all__ = ["ProgramComparison", "match_names", "match_trainings", "name_training", "rename_owner"]

# relative: far less than samples or trainings differ by, far more than rounding does
_SAME = 1e-4
_STATE = ("parameter", "buffer", "optimizer state")
_OF, _OUTPUT = " of ", "output "


def match_names(plain: Mapping[str, Sequence[int]], ported: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """Return plain PyTorch's name of each of a port's parameters, both given with shapes: that with the longest end.

    >>> match_names({"0.weight": (2,), "1.weight": (2,)}, {"model.1.weight": (2,), "model.0.weight": (2,)})
    {'model.1.weight': '1.weight', 'model.0.weight': '0.weight'}
    """
    ends: Any = {name: name.split(".")[::-1] for name in (*plain, *ported)}
    pairs = [(len(os.path.commonprefix([ends[one], ends[other]])), one, other) for other in ported for one in plain]
    found: Dict[str, str] = {}
    for _length, one, other in sorted(pairs, key=lambda pair: -pair[0]):
        if other not in found and one not in found.values() and tuple(plain[one]) == tuple(ported[other]):
            found[other] = one
    return {name: found.get(name, name) for name in ported}


def match_trainings(plain: ObservedTraining, other: ObservedTraining) -> Dict[str, str]:
    """Return plain PyTorch's names of what another training trains."""
    return match_names(_collect_shapes(plain), _collect_shapes(other))


def name_training(number: int) -> str:
    """Return what names of an optimizer's tensors begin with: nothing for the first one."""
    return f"optimizer {number + 1}: " if number else ""


def rename_owner(name: str, names: Mapping[str, str]) -> str:
    """Return the name of a tensor, or of a slot of an optimizer's state that is kept for it, with names exchanged."""
    slot, of, owner = name.rpartition(_OF)
    return slot + of + names.get(owner, owner)


class ProgramComparison:
    """Two observations, each as one record: of a second optimizer on, names begin with its number."""

    def __init__(self, plain: Observation, ported: Observation) -> None:
        """Match the trainings of both, and the names of their parameters."""
        self._sides = plain, ported
        self._names = []
        for ours, theirs in zip(plain.trainings, ported.trainings):
            _drop_partial_losses(ours, theirs)
            self._names.append(match_trainings(ours, theirs))
        self.runs = Runs(max(training.eps for side in self._sides for training in side.trainings))
        self.runs.ported = self._join_trainings(ported, self._names)
        self.runs.plain = self._join_plain(plain)

    def _join_plain(self, observed: Observation) -> Record:
        """Return the record of a run of the plain program, with what the port has left as well."""
        record = self._join_trainings(observed, [{}] * len(self._names))
        kept = {(kind, step) for kind, step in self.runs.ported.sketches if kind in _STATE}
        record.sketches = {
            key: sketches for key, sketches in record.sketches.items() if key[0] not in _STATE or key in kept
        }
        return record

    def add_runs(self, *runs: Observation) -> str:
        """Add runs of the plain program that may differ by rounding; say how one has trained something else."""
        unequal = ""
        for record in map(self._join_plain, runs):
            self.runs.others.append(record)
            unequal = unequal or describe_repetition(self.runs.plain, record, (1, 2))
        return unequal

    def judge(self) -> Judgement:
        """Compare all that both have."""
        self._keep_common_evaluations()
        self._match_outputs()
        judgement = self.runs.judge()
        _leave_out_others(judgement)
        judgement.add(self._iter_alone())
        rows = list(self._compare_rows())
        # a batch may reach a model in another form, and then all else is the same
        if list_outside(judgement) or all(one.is_inside for one in rows):
            judgement.add(rows)
        else:
            judgement.reasons["samples"] = "the models are given batches in other forms"
        return judgement

    def iter_missing(self) -> Iterator[str]:
        """Say what keeps numbers of both from being compared."""
        for ours, theirs in zip(*(side.trainings for side in self._sides)):
            if (ours.draws or theirs.draws) and ours.micro_batches != theirs.micro_batches:
                sizes = (
                    f"{theirs.micro_batches} micro-batches a step in the port, {ours.micro_batches} in plain PyTorch"
                )
                yield f"random numbers are drawn for each micro-batch, and there are {sizes}"

    def iter_notes(self) -> Iterator[str]:
        """Say which names stand for one another."""
        renamed = [(one, other) for names in self._names for other, one in names.items() if one != other]
        if renamed:
            one, other = renamed[0]
            yield f"{say_number(len(renamed), 'parameter')} have other names, as `{other}` in the port for `{one}`"

    def find_training(self, name: str) -> int:
        """Return the place of the port's training that a measured name belongs to."""
        number = next((n for n in range(1, len(self._names)) if name.startswith(name_training(n))), 0)
        return min(number, len(self._sides[1].trainings) - 1)

    def _join_trainings(self, observed: Observation, names: Sequence[Mapping[str, str]]) -> Record:
        joined = Record()
        for number, (training, renamed) in enumerate(zip(observed.trainings, names)):
            record, prefix = training.record, name_training(number)
            for step, losses in record.losses.items():
                joined.losses.setdefault(step, [] if number else losses)
                if number and losses:
                    joined.keep("output", step, {f"{prefix}loss": torch.tensor([sum(losses) / len(losses)])})
                joined.rates.setdefault(step, []).extend(record.rates[step])
                settings = record.settings[step].items()
                joined.settings.setdefault(step, {}).update(
                    {prefix + rename_owner(n, renamed): own for n, own in settings}
                )
            for key, sketches in record.sketches.items():
                own = {prefix + rename_owner(name, renamed): sketch for name, sketch in sketches.items()}
                joined.sketches.setdefault(key, {}).update(own)
        return joined

    def _keep_common_evaluations(self) -> None:
        """Leave out what only one side returns from evaluations, or in another shape: it need not be the model's."""
        for key in [key for key in self.runs.plain.sketches if key[0] == "evaluation"]:
            ours, theirs = (side.sketches.get(key, {}) for side in (self.runs.plain, self.runs.ported))
            common = {name for name in ours if name in theirs and ours[name].shape == theirs[name].shape}
            for sketches in (ours, theirs):
                for name in set(sketches) - common:
                    del sketches[name]

    def _match_outputs(self) -> None:
        """Give the outputs that the port's model returns the names of plain PyTorch's of the same shape.

        Others are left out: a port may return its loss as well, or outputs of the last micro-batches alone.
        """
        ours, theirs = (side.sketches.get(("output", 1), {}) for side in (self.runs.plain, self.runs.ported))
        left = {name: theirs.pop(name) for name in [*theirs] if name.startswith(_OUTPUT)}
        for name in [name for name in ours if name.startswith(_OUTPUT)]:
            like = [other for other in left if not describe_form(ours[name], left[other])]
            if like:
                theirs[name] = left.pop(min(like, key=lambda other: distance_of_sketches(ours[name], left[other])))
            else:
                del ours[name]

    def _iter_alone(self) -> Iterator[Measured]:
        counts = [len(side.trainings) for side in self._sides]
        side = "plain PyTorch" if counts[0] > counts[1] else "the port"
        for number in range(min(counts), max(counts)):
            yield Measured("setting", f"optimizer {number + 1}", 1, math.inf, 0.0, 0.0, f"only {side} makes its steps")

    def _compare_rows(self) -> Iterator[Measured]:
        """Compare the samples of each call; their order within it changes nothing."""
        for number, (ours, theirs) in enumerate(zip(*(side.trainings for side in self._sides))):
            for step, own in theirs.rows.items():
                steps = range(step - theirs.steps_per_call + 1, step + 1)
                plain = [ours.rows[one] for one in steps if one in ours.rows]
                if len(plain) == len(steps):
                    joined = [torch.cat(parts) for parts in zip(*plain)]
                    note = _describe_rows(joined, own, ours.rows, max(_SAME, self.runs.unit))
                    distance = math.inf if note else 0.0
                    yield Measured("samples", f"{name_training(number)}batch", step, distance, 0.0, 0.0, note)


def _leave_out_others(judgement: Judgement) -> None:
    """Leave out outputs that differ: they need not mean the same, and where they do, the loss tells it."""
    found = judgement.measured.pop("output", [])
    same = [one for one in found if one.is_inside or not one.name.startswith(_OUTPUT)]
    if len(same) < len(found):
        judgement.reasons["output"] = "the port's model returns something else"
    judgement.add(same)


def _drop_partial_losses(plain: ObservedTraining, ported: ObservedTraining) -> None:
    """Drop a port's losses of its last micro-batches alone where plain PyTorch has others."""
    losses = ported.record.losses
    if plain.micro_batches != ported.micro_batches:
        losses.update({step: [] for step, known in losses.items() if len(known) < ported.micro_batches})


def _collect_shapes(training: ObservedTraining) -> Mapping[str, Sequence[int]]:
    """Return the shapes of parameters and buffers by name."""
    buffers = training.record.sketches.get(("buffer", max(training.rows)), {})
    return {**training.shapes, **{name: sketch.shape for name, sketch in buffers.items()}}


def _describe_rows(
    plain: Sequence[torch.Tensor],
    ported: Sequence[torch.Tensor],
    known: Mapping[int, Sequence[torch.Tensor]],
    tolerance: float,
) -> str:
    """Say which samples of a port are others; nothing if each tensor of plain PyTorch's batch is one of its."""
    for number, one in enumerate(plain):
        like = [other for other in ported if other.numel() == one.numel()]
        if not like:
            sizes = sorted({other.numel() for other in ported})
            return f"{say_number(one.numel(), 'row')} in plain PyTorch, {' or '.join(map(str, sizes))} in the port"
        other = min(like, key=lambda rows: _count_others(one, rows, tolerance))
        count = _count_others(one, other, tolerance)
        if count:
            pairs = ((step, rows[number]) for step, rows in known.items() if number < len(rows))
            step = next((step for step, rows in pairs if not _count_others(rows, other, tolerance)), None)
            origin = "" if step is None else f"; they are those of step {step}"
            return f"{count} of {say_number(other.numel(), 'sample')} in the port are others{origin}"
    return ""


def _count_others(plain: torch.Tensor, ported: torch.Tensor, tolerance: float) -> int:
    """Count the rows of a batch that the other one does not have."""
    least = tolerance * float(plain.abs().max())
    return max(_count_lacking(plain, ported, least), _count_lacking(ported, plain, least))


def _count_lacking(known: torch.Tensor, rows: torch.Tensor, least: float) -> int:
    known = known.sort().values
    place = torch.searchsorted(known, rows).clamp(max=len(known) - 1)
    apart = torch.minimum((rows - known[place]).abs(), (rows - known[(place - 1).clamp(min=0)]).abs())
    return int((apart > least).sum())
