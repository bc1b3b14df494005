"""Two traces of one micro-batch side by side: the first operator that differs, and the first gradient that does.

Operators are aligned by the path of their module and their order in it. What is rounding is told by a third trace, of
plain PyTorch with weights that differ in their last bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import AbstractSet, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from porting.comparison.tensors import distance_of, have_same_specials
from porting.verify.fault_location.step_trace import GradientRecord, MicroBatchTrace, ValueRecord

__all__ = ["Apart", "GradientFault", "ValueFault", "find_gradient_fault", "find_value_fault", "measure_apart"]

# of what rounding of a weight does to a value; and units in the last place of a value that nothing was changed for
_MARGIN = 4.0
_UNITS = 8.0


@dataclass(frozen=True)
class Apart:
    """How far two tensors are from each other, how large they are, and how far rounding alone goes.

    `factor` is what the plain one has to be multiplied by to come as near to the other as it can.
    """

    distance: float
    scale: float
    band: float
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


@dataclass(frozen=True)
class GradientFault:
    """The first gradient of the backward pass that differs, at the node of autograd that makes it.

    `is_cut` says that the port's pass does not come there. `parameters` are those whose gradient it sends wrongly.
    """

    plain: Optional[GradientRecord]
    ported: Optional[GradientRecord]
    apart: Apart
    is_cut: bool = False
    parameters: Tuple[str, ...] = ()
    extra: Optional[ValueRecord] = None


def measure_apart(plain: torch.Tensor, ported: torch.Tensor, changed: Optional[torch.Tensor] = None) -> Apart:
    """Measure the distance of two tensors; `changed` is the plain one of the run whose weights are changed a little.

    Of whole numbers and truth values the elements that differ are counted.
    """
    if plain.shape != ported.shape:
        return Apart(math.inf, 1.0, 0.0)
    if not (plain.is_floating_point() and ported.is_floating_point()):
        if plain.is_complex() and ported.is_complex():
            pair = [torch.view_as_real(tensor.resolve_conj()) for tensor in (plain, ported)]
            return measure_apart(pair[0], pair[1])
        noise = 0.0 if changed is None else _count_different(plain, changed)
        return Apart(_count_different(plain, ported), float(plain.numel()), _MARGIN * noise)
    one, other = plain.double(), ported.double()
    if not have_same_specials(one, other):
        return Apart(math.inf, 1.0, 0.0)
    scale = distance_of(one, torch.zeros_like(one))
    epsilon = max(torch.finfo(plain.dtype).eps, torch.finfo(ported.dtype).eps)
    noise = 0.0 if changed is None or changed.shape != plain.shape else distance_of(one, changed.double())
    factor = float((one * other).nan_to_num(0.0, 0.0, 0.0).sum()) / scale**2 if scale else math.nan
    return Apart(distance_of(one, other), scale, _MARGIN * noise + _UNITS * epsilon * scale, factor)


def _count_different(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one != other).sum()) if one.shape == other.shape else math.inf


# -- values ------------------------------------------------------------------------------------------------------------


def find_value_fault(
    plain: MicroBatchTrace, ported: MicroBatchTrace, changed: Optional[MicroBatchTrace] = None
) -> Optional[ValueFault]:
    """Return the first operator of the forward pass whose result differs, or None.

    Operators that only one side has are the fault where the next common one differs.
    """
    ones, others = _list_telling(plain), _list_telling(ported)
    noise = _list_telling(changed) if changed is not None else []
    noisy = len(noise) == len(ones)
    pairs = list(_align_keys([_key_value(one) for one in ones], [_key_value(other) for other in others]))
    matched = {ones[i].number for i, j in pairs if i is not None and j is not None}
    partners = {others[j].number for i, j in pairs if i is not None and j is not None}
    for i, j in pairs:
        if i is None or j is None:
            continue
        apart = _measure_results(ones[i], others[j], noise[i] if noisy else None)
        if apart is not None and not apart.is_rounding:
            alone = _go_back(plain, ones[i], matched), _go_back(ported, others[j], partners)
            return ValueFault(*alone, apart) if any(alone) else ValueFault(ones[i], others[j], apart)
    return _find_fault_of_loss(plain, ported, changed, [_find_alone(ones, matched), _find_alone(others, partners)])


def _go_back(trace: MicroBatchTrace, record: ValueRecord, matched: AbstractSet[int]) -> Optional[ValueRecord]:
    """Return the first operator, of those that one side has alone, whose result went into `record`."""
    waiting, seen = list(record.sources), set()
    while waiting:
        number = waiting.pop()
        if number not in seen and number not in matched:
            seen.add(number)
            waiting += trace.values[number].sources
    alone = [trace.values[number] for number in sorted(seen) if not _is_meaningless(trace.values[number])]
    return alone[0] if alone else None


def _find_alone(records: Sequence[ValueRecord], matched: AbstractSet[int]) -> Optional[ValueRecord]:
    return next((record for record in reversed(records) if record.number not in matched), None)


def _find_fault_of_loss(
    plain: MicroBatchTrace,
    ported: MicroBatchTrace,
    changed: Optional[MicroBatchTrace],
    alone: Sequence[Optional[ValueRecord]],
) -> Optional[ValueFault]:
    """Return what one side has alone, at the end, where the losses differ though all common operators are equal."""
    if plain.loss is None or ported.loss is None or not any(alone):
        return None
    noise = None if changed is None else changed.loss
    if ported.loss.numel() != plain.loss.numel():
        return ValueFault(alone[0], alone[1], Apart(math.inf, 1.0, 0.0))
    apart = measure_apart(plain.loss, ported.loss.reshape(plain.loss.shape), noise)
    return None if apart.is_rounding else ValueFault(alone[0], alone[1], apart)


def _measure_results(one: ValueRecord, other: ValueRecord, changed: Optional[ValueRecord]) -> Optional[Apart]:
    measured = [
        measure_apart(a, b, None if changed is None or number >= len(changed.results) else changed.results[number])
        for number, (a, b) in enumerate(zip(one.results, other.results))
    ]
    return max(measured, key=_say_how_bad) if measured else None


def _say_how_bad(apart: Apart) -> float:
    return apart.distance / apart.band if apart.band else (math.inf if apart.distance else 0.0)


# these copy or convert, and may be on one side alone without a meaning
_MEANINGLESS = frozenset(["aten.alias", "aten.clone", "aten._to_copy", "aten.lift_fresh", "aten.copy_", "aten.copy"])


def _list_telling(trace: MicroBatchTrace) -> List[ValueRecord]:
    return [value for value in trace.values if not _is_meaningless(value)]


def _is_meaningless(value: ValueRecord) -> bool:
    if value.name in _MEANINGLESS:
        return True
    if value.name == "aten.detach":
        return "detach" not in value.origin.title  # autograd's own, for what it saves
    # a count of batches, which is no part of the graph
    return value.name == "aten.add_" and not any(result.is_floating_point() for result in value.results)


def _key_value(value: ValueRecord) -> Tuple[str, str]:
    return value.origin.module, value.name


# -- gradients ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    plain: MicroBatchTrace
    ported: MicroBatchTrace
    changed: Optional[MicroBatchTrace]
    seeds: Tuple[float, float, float]

    def measure(self, one: GradientRecord, other: GradientRecord, which: str) -> Dict[int, Apart]:
        """Measure each gradient that went in, or came out, without what the losses were multiplied by."""
        changed: Sequence[Any] = ()
        if self.changed is not None and len(self.changed.gradients) == len(self.plain.gradients):
            changed = getattr(self.changed.gradients[one.number], which)
        found = {}
        pairs = zip(getattr(one, which), getattr(other, which))
        for edge, (a, b) in enumerate(pairs):
            if a is None or b is None:
                continue
            c = changed[edge] if edge < len(changed) and changed[edge] is not None else None
            noise = None if c is None else c / self.seeds[2]
            wide = torch.promote_types(a.dtype, b.dtype)
            found[edge] = measure_apart(a / self.seeds[0], b.to(wide) / self.seeds[1], noise)
        return found


def find_gradient_fault(
    plain: MicroBatchTrace,
    ported: MicroBatchTrace,
    changed: Optional[MicroBatchTrace] = None,
    *,
    seeds: Tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Optional[GradientFault]:
    """Return the first gradient, in the order of plain PyTorch's backward pass, that differs, or None.

    `seeds` are what the losses were multiplied by before the passes: plain, ported, changed.
    """
    sides = _Sides(plain, ported, changed, seeds)
    pairs = _align_keys([_key_node(one) for one in plain.gradients], [_key_node(other) for other in ported.gradients])
    partners = {i: j for i, j in pairs if i is not None}
    extra = _find_extra_operator(plain, ported)
    for one in sorted((node for node in plain.gradients if node.has_run), key=lambda node: node.order):
        partner = partners.get(one.number)
        if partner is None:
            continue
        other = ported.gradients[partner]
        if not other.has_run:
            return GradientFault(one, other, Apart(math.inf, 1.0, 0.0), True, tuple(one.leaves.values()), extra)
        fault = _compare_nodes(sides, one, other)
        if fault is not None:
            return GradientFault(one, other, fault[0], False, fault[1], extra)
    return None


def _compare_nodes(
    sides: _Sides, one: GradientRecord, other: GradientRecord
) -> Optional[Tuple[Apart, Tuple[str, ...]]]:
    for apart in sides.measure(one, other, "incoming").values():
        if not apart.is_rounding:
            return apart, ()
    wrong = {edge: apart for edge, apart in sides.measure(one, other, "outgoing").items() if not apart.is_rounding}
    for edge in one.leaves:
        if one.outgoing[edge] is not None and (edge >= len(other.outgoing) or other.outgoing[edge] is None):
            wrong[edge] = Apart(math.inf, 1.0, 0.0)
    if not wrong:
        return None
    return next(iter(wrong.values())), tuple(one.leaves[edge] for edge in wrong if edge in one.leaves)


def _find_extra_operator(plain: MicroBatchTrace, ported: MicroBatchTrace) -> Optional[ValueRecord]:
    """Return the last operator of the forward pass that the port has alone; a `detach` before all others."""
    ones, others = _list_telling(plain), _list_telling(ported)
    pairs = _align_keys([_key_value(one) for one in ones], [_key_value(other) for other in others])
    found = [others[j] for i, j in pairs if i is None and j is not None]
    return next((value for value in reversed(found) if value.name == "aten.detach"), found[-1] if found else None)


def _key_node(record: GradientRecord) -> Tuple[str, str]:
    return record.origin.module, record.node


# -- alignment ---------------------------------------------------------------------------------------------------------

_Pair = Tuple[Optional[int], Optional[int]]
# beyond this many operators a search for the best alignment takes too long, and modules are aligned one by one
_MOST_AT_ONCE = 3000


def _align_keys(ones: Sequence[Any], others: Sequence[Any]) -> Iterator[_Pair]:
    """Yield the places of what corresponds, and of what one side has alone, in the order of the second side."""
    if ones == others:
        return iter([(index, index) for index in range(len(ones))])
    if max(len(ones), len(others)) <= _MOST_AT_ONCE:
        return iter(_match_keys(ones, others))
    return iter(_align_modules(ones, others))


def _match_keys(ones: Sequence[Any], others: Sequence[Any]) -> List[_Pair]:
    pairs: List[_Pair] = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, ones, others, autojunk=False).get_opcodes():
        if kind == "equal":
            pairs += zip(range(i, i_end), range(j, j_end))
        else:
            pairs += [(place, None) for place in range(i, i_end)]
            pairs += [(None, place) for place in range(j, j_end)]
    return pairs


def _align_modules(ones: Sequence[Any], others: Sequence[Any]) -> List[_Pair]:
    own, foreign = _group_keys(ones), _group_keys(others)
    found: List[_Pair] = []
    for module, places in foreign.items():
        before = own.pop(module, [])
        pairs = _match_keys([ones[place] for place in before], [others[place] for place in places])
        found += [(None if i is None else before[i], None if j is None else places[j]) for i, j in pairs]
    found += [(place, None) for places in own.values() for place in places]
    # what the first side has alone comes where its own order puts it
    key: Callable[[_Pair], int] = lambda pair: pair[1] if pair[1] is not None else (pair[0] or 0)  # noqa: E731
    return sorted(found, key=key)


def _group_keys(keys: Sequence[Any]) -> Dict[str, List[int]]:
    found: Dict[str, List[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key[0], []).append(place)
    return found
