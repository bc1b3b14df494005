"""Find the first operator and the first gradient that differ between two traces of one micro-batch.

Operators are aligned by the path of their module and their order in it. What is rounding is told by a third trace, of
plain PyTorch with weights that differ in their last bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.comparison.tensors import distance_of, have_same_specials
from porting.verify.fault_location.step_trace import MicroBatchTrace, ValueRecord

__all__ = ["Apart", "ValueFault", "find_extra_operator", "find_value_fault", "measure_apart"]

# of what rounding of a weight does to a value; and units in the last place of a value that nothing was changed for
_MARGIN = 4.0
_UNITS = 8.0

_Pair = Tuple[ValueRecord, ValueRecord]


@dataclass(frozen=True)
class Apart:
    """How far two tensors are from each other, how large they are, and how far rounding alone goes.

    `factor` is what the plain one has to be multiplied by to come as near to the other as it can.
    """

    distance: float = math.inf
    scale: float = 1.0
    band: float = 0.0
    factor: float = math.nan

    @property
    def is_rounding(self) -> bool:
        """Whether rounding explains it."""
        return self.distance <= self.band


@dataclass(frozen=True)
class ValueFault:
    """The first operator that differs: on both sides, or on the one that has it alone."""

    plain: Optional[ValueRecord]
    ported: Optional[ValueRecord]
    apart: Apart

    @property
    def record(self) -> ValueRecord:
        """The operator, of the port where it has it."""
        record = self.ported or self.plain
        assert record is not None
        return record


def measure_apart(plain: torch.Tensor, ported: torch.Tensor, changed: Optional[torch.Tensor] = None) -> Apart:
    """Measure the distance of two tensors; `changed` is the plain one of the run whose weights are changed a little.

    Of whole numbers and truth values the elements that differ are counted.
    """
    if plain.shape != ported.shape:
        return Apart()
    if changed is not None and changed.shape != plain.shape:
        changed = None
    if plain.is_complex() and ported.is_complex():
        return measure_apart(torch.view_as_real(plain.resolve_conj()), torch.view_as_real(ported.resolve_conj()))
    if not (plain.is_floating_point() and ported.is_floating_point()):
        noise = 0.0 if changed is None else float((plain != changed).sum())
        return Apart(float((plain != ported).sum()), float(plain.numel()), _MARGIN * noise)
    one, other = plain.double(), ported.double()
    if not have_same_specials(one, other):
        return Apart()
    scale = distance_of(one, torch.zeros_like(one))
    epsilon = max(torch.finfo(plain.dtype).eps, torch.finfo(ported.dtype).eps)
    noise = 0.0 if changed is None else distance_of(one, changed.double())
    factor = float((one * other).nan_to_num(0.0, 0.0, 0.0).sum()) / scale**2 if scale else math.nan
    return Apart(distance_of(one, other), scale, _MARGIN * noise + _UNITS * epsilon * scale, factor)


def find_value_fault(
    plain: MicroBatchTrace,
    ported: MicroBatchTrace,
    changed: Optional[MicroBatchTrace] = None,
    *,
    seeds: Optional[Sequence[float]] = None,
) -> Optional[ValueFault]:
    """Return the first operator whose result differs, or None: of the forward pass, with `seeds` of the backward one.

    Those that the loss depends on come first: what else both sides compute may have other forms. `seeds` are what the
    losses were multiplied by before the passes: plain, ported, changed. Operators that only one side has are the fault
    where the next common one differs, or at the end the loss.
    """
    noise = [] if changed is None or len(changed.values) != len(plain.values) else changed.values
    pairs, alone = _align_values(plain, ported)
    used = plain.collect_used(), ported.collect_used()
    if seeds is None:
        pairs.sort(key=lambda pair: not all(record.number in of for record, of in zip(pair, used)))
    for one, other in pairs:
        if one.is_backward != (seeds is not None):
            continue
        apart = _measure_results(one, other, noise[one.number] if noise else None, seeds or (1.0, 1.0, 1.0))
        if not apart.is_rounding:
            behind = _go_back(plain, one, alone[0]), _go_back(ported, other, alone[1])
            return ValueFault(*(behind if any(behind) else (one, other)), apart)
    if seeds is not None or not any(alone) or plain.loss is None or ported.loss is None:
        return None
    loss = ported.loss.reshape(plain.loss.shape) if ported.loss.numel() == plain.loss.numel() else ported.loss
    apart = measure_apart(plain.loss, loss, None if changed is None else changed.loss)
    last = [
        next((record for record in reversed(list(side.values())) if not record.is_backward), None) for side in alone
    ]
    return None if apart.is_rounding else ValueFault(last[0], last[1], apart)


def find_extra_operator(plain: MicroBatchTrace, ported: MicroBatchTrace) -> Optional[ValueRecord]:
    """Return the last operator of the forward pass that the port has alone; a `detach` before all others."""
    alone = [record for record in _align_values(plain, ported)[1][1].values() if not record.is_backward]
    cuts = [record for record in alone if record.name == "aten.detach"]
    return next(iter((cuts or alone)[::-1]), None)


def _measure_results(
    one: ValueRecord, other: ValueRecord, noise: Optional[ValueRecord], seeds: Sequence[float]
) -> Apart:
    """Measure the first result that differs, without what the losses were multiplied by."""
    for number, (a, b) in enumerate(zip(one.results, other.results)):
        c = a if noise is None or number >= len(noise.results) else noise.results[number]
        apart = measure_apart(a, b, c)
        if not apart.is_rounding and seeds[0] != seeds[1] and a.is_floating_point():
            # of what a derivative is multiplied by, the loss is no factor
            wide = torch.promote_types(a.dtype, b.dtype)
            apart = measure_apart(a / seeds[0], b.to(wide) / seeds[1], c / seeds[2])
        if not apart.is_rounding:
            return apart
    return Apart(0.0)


def _go_back(trace: MicroBatchTrace, record: ValueRecord, alone: Mapping[int, ValueRecord]) -> Optional[ValueRecord]:
    """Return the first operator, of those that one side has alone, whose result went into `record`."""
    waiting, seen = list(record.sources), set()
    while waiting:
        number = waiting.pop()
        is_passed = number in alone or not _is_telling(trace.values[number])
        if is_passed and number not in seen:
            seen.add(number)
            waiting += trace.values[number].sources
    found = (alone[number] for number in sorted(seen) if number in alone)
    return next((own for own in found if own.is_backward == record.is_backward), None)


# these copy or convert, and may be on one side alone without a meaning
_MEANINGLESS = frozenset(["aten.alias", "aten.clone", "aten._to_copy", "aten.lift_fresh", "aten.copy_", "aten.copy"])


def _is_telling(value: ValueRecord) -> bool:
    if value.name == "aten.detach":
        return "detach" in value.origin.title  # else it is autograd's own, for what it saves
    # a count of batches is no part of the graph
    is_count = value.name == "aten.add_" and not any(result.is_floating_point() for result in value.results)
    return value.name not in _MEANINGLESS and not is_count


def _align_values(plain: MicroBatchTrace, ported: MicroBatchTrace) -> Tuple[List[_Pair], List[Dict[int, ValueRecord]]]:
    """Return the pairs of what corresponds, in the order of the port, and by number what each side has alone."""
    sides = [list(filter(_is_telling, trace.values)) for trace in (plain, ported)]
    own, foreign = (_group_by_module(side) for side in sides)
    pairs: List[_Pair] = []
    for module, theirs in foreign.items():
        ours = own.get(module, [])
        keys = [[record.name for record in side] for side in (ours, theirs)]
        blocks: Sequence[Tuple[int, int, int]] = [(0, 0, len(ours))]
        if keys[0] != keys[1]:  # the search takes long for many
            # a layer of several may be run as a whole on one side: its operators are many times the same ones
            forms = [[(record.name, _list_shapes(record)) for record in side] for side in (ours, theirs)]
            blocks = SequenceMatcher(None, forms[0], forms[1], autojunk=False).get_matching_blocks()
        for i, j, size in blocks:
            pairs += zip(ours[i : i + size], theirs[j : j + size])
    pairs.sort(key=lambda pair: pair[1].number)
    alone = []
    for place, side in enumerate(sides):
        matched = {pair[place].number for pair in pairs}
        alone.append({record.number: record for record in side if record.number not in matched})
    return pairs, alone


def _list_shapes(record: ValueRecord) -> Tuple[torch.Size, ...]:
    return tuple(result.shape for result in record.results)


def _group_by_module(records: Sequence[ValueRecord]) -> Dict[Tuple[bool, str], List[ValueRecord]]:
    found: Dict[Tuple[bool, str], List[ValueRecord]] = {}
    for record in records:
        found.setdefault((record.is_backward, record.origin.module), []).append(record)
    return found
