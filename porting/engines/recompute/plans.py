"""Choose the parts of a forward pass to compute a second time: the policies, as pure functions over its units.

A plan cuts the units into stretches that run one after another. What a later stretch, or the result, takes from an
earlier one is kept for the backward pass; all else of a stretch is forgotten and computed again, except in the last
one, whose backward pass begins at once.

* `chen`: cuts where a single value crosses, about every sqrt(n) units (Chen et al. 2016, arXiv 1604.06174).
* `gttime`, `gtmem`: dynamic programming over lower sets (Kusumoto et al. 2019, arXiv 1905.11722, its approximation):
  the least recomputation, or the most, whose predicted peak stays within a budget, by default the least possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import numpy as np

from .value_units import UnitGraph

__all__ = ["Plan", "plan_chen", "plan_everything", "plan_lower_sets"]

# More lower sets than these make a plan little better and its making slow.
_MAX_SETS = 160
_MAX_STATES = 48


@dataclass(frozen=True)
class Plan:
    """Stretches of units, in the order in which they run, and for each whether it is computed again.

    `budget_bytes` is what the search kept to, if it had any.
    """

    stretches: Tuple[Tuple[int, ...], ...]
    recomputed: Tuple[bool, ...]
    budget_bytes: Optional[int] = None

    @classmethod
    def but_last(cls, stretches: Sequence[Sequence[int]], budget_bytes: Optional[int] = None) -> Plan:
        """Compute all stretches again save the last one, whose backward pass follows at once."""
        whole = tuple(tuple(int(unit) for unit in stretch) for stretch in stretches)
        return cls(whole, (True,) * (len(whole) - 1) + (False,), budget_bytes)


def plan_everything(graph: UnitGraph) -> Plan:
    """Forget all and compute all a second time: `dummy2`."""
    return Plan((tuple(range(len(graph.units))),), (True,))


def plan_chen(graph: UnitGraph, *, budget_bytes: Optional[int] = None) -> Plan:
    """Cut at articulation points once `budget_bytes` have been computed; by default all bytes over sqrt(units).

    Where no single value crosses for three times as long, the cut is where the fewest bytes do.
    """
    sizes = [unit.num_bytes for unit in graph.units]
    limit = budget_bytes if budget_bytes is not None else sum(sizes) / max(1.0, math.sqrt(len(sizes)))
    crossing = _list_crossing(graph)
    stretches: List[Tuple[int, ...]] = []
    start, filled = 0, 0
    for number, size in enumerate(sizes[:-1]):
        # Bytes, not operators: a segment is as good as the memory that it forgets.
        filled += size
        end = None
        if filled >= limit and len(crossing[number]) <= 1:
            end = number
        elif filled >= 3 * limit:
            # Residual networks have long stretches in which two values are alive everywhere.
            end = min(range(start, number + 1), key=lambda cut: sum(sizes[item] for item in crossing[cut]))
        if end is not None:
            stretches.append(tuple(range(start, end + 1)))
            start, filled = end + 1, sum(sizes[end + 1 : number + 1])
    stretches.append(tuple(range(start, len(sizes))))
    return Plan.but_last(stretches, int(limit))


def _list_crossing(graph: UnitGraph) -> List[List[int]]:
    """List for each unit the units, up to it, whose results are read after it."""
    last_use = list(range(len(graph.units)))
    for number, used in enumerate(graph.uses):
        for item in used:
            last_use[item] = max(last_use[item], number)
    alive: List[int] = []
    found = []
    for number, unit in enumerate(graph.units):
        alive = [item for item in alive if last_use[item] > number]
        if last_use[number] > number and unit.num_bytes:
            alive.append(number)
        found.append(list(alive))
    return found


def plan_lower_sets(graph: UnitGraph, *, budget_bytes: Optional[int] = None, saves_time: bool) -> Plan:
    """Choose a chain of lower sets whose predicted peak is at most `budget_bytes`, by default the least possible.

    With `saves_time` it recomputes as little as that allows, else as much, which leaves room below the prediction. A
    budget below the least possible is raised to that.
    """
    if len(graph.units) < 2:
        return Plan.but_last([range(len(graph.units))])
    search = _Search(graph)
    least = search.find_least_budget()
    budget = least if budget_bytes is None else max(budget_bytes, least)
    chain = search.choose_best_chain(budget, saves_time=saves_time)
    stretches = [np.flatnonzero(after & ~before).tolist() for before, after in zip(chain, chain[1:])]
    return Plan.but_last(stretches, int(budget))


class _Search:
    """The dynamic program; sets of units are rows of Booleans, sums over sets are products of matrices."""

    def __init__(self, graph: UnitGraph) -> None:
        self._sizes = np.array([unit.num_bytes for unit in graph.units], dtype=np.float64)
        costs = np.array([unit.flops + unit.num_bytes for unit in graph.units], dtype=np.float64)
        reads = np.zeros((len(graph.units), len(graph.units)), dtype=bool)
        for number, used in enumerate(graph.uses):
            reads[number, sorted(used)] = True
        self._sets = _list_lower_sets(graph, self._sizes, reads)
        sets = self._sets.astype(np.float64)
        boundary = _find_boundary(self._sets, reads).astype(np.float64)
        num_bytes = sets @ self._sizes
        # [i, j]: bytes of the boundary of j outside of i; cost of j without i and without its own boundary
        self._new_kept = (boundary @ self._sizes)[None, :] - sets @ (boundary * self._sizes).T
        forgotten = (sets - boundary) * costs
        self._cost = forgotten.sum(1)[None, :] - sets @ forgotten.T
        # Sets that grow into each other, in bytes as well, so that a search over them is one over a graph without
        # circles.
        self._follows = (sets @ (1 - sets).T == 0) & (num_bytes[:, None] <= num_bytes[None, :])
        self._follows &= sets.sum(1)[:, None] < sets.sum(1)[None, :]
        outside = ~self._sets
        wide = reads.astype(np.float64)
        # The gradients at the border of a set are made of what its readers have, and those need their other operands.
        users = outside & (sets @ wide.T > 0)
        others = outside & (users.astype(np.float64) @ wide > 0)
        around = users @ self._sizes + others @ self._sizes
        # [i, j]: the peak while the units between i and j run backward, besides what is kept
        self._peaks: np.ndarray = 2 * (num_bytes[None, :] - num_bytes[:, None]) + around[None, :]
        self._most = 2 * float(num_bytes[-1]) + float(around.max()) + 1

    def find_least_budget(self) -> float:
        """Return the least budget with a chain from nothing to all units."""
        low, high = 0.0, self._most
        for _ in range(24):
            middle = (low + high) / 2
            is_enough = np.isfinite(self._find_least_kept(middle)[-1])
            low, high = (low, middle) if is_enough else (middle, high)
        return math.ceil(high)

    def _find_least_kept(self, budget: float) -> np.ndarray:
        kept = np.full(len(self._sets), np.inf)
        kept[0] = 0.0
        for number in range(1, len(kept)):
            possible = self._follows[:, number] & (kept + self._peaks[:, number] <= budget)
            if possible.any():
                kept[number] = (kept + self._new_kept[:, number])[possible].min()
        return kept

    def choose_best_chain(self, budget: float, *, saves_time: bool) -> List[np.ndarray]:
        """Return the sets of the chain with the least (or the most) recomputation within `budget`, the empty one first.

        Of each set some states are kept: (cost, bytes kept, set before, state before), none worse than another.
        """
        sign = 1.0 if saves_time else -1.0
        states: List[np.ndarray] = [np.zeros((1, 4))]
        for number in range(1, len(self._sets)):
            is_last = number == len(self._sets) - 1
            candidates = []
            for earlier in np.flatnonzero(self._follows[:, number]):
                known = states[earlier]
                fits = np.flatnonzero(known[:, 1] + self._peaks[earlier, number] <= budget)
                if len(fits):
                    added = np.empty((len(fits), 4))
                    added[:, 0] = known[fits, 0] + (0.0 if is_last else sign * self._cost[earlier, number])
                    added[:, 1] = known[fits, 1] + self._new_kept[earlier, number]
                    added[:, 2], added[:, 3] = earlier, fits
                    candidates.append(added)
            states.append(_drop_dominated(np.concatenate(candidates)) if candidates else np.empty((0, 4)))
        number, state = len(states) - 1, int(np.lexsort((states[-1][:, 1], states[-1][:, 0]))[0])
        chain = [self._sets[number]]
        while number:
            _cost, _kept, before, before_state = states[number][state]
            number, state = int(before), int(before_state)
            chain.append(self._sets[number])
        return chain[::-1]


def _drop_dominated(states: np.ndarray) -> np.ndarray:
    """Keep the states of which none has less cost and fewer bytes; of many, some over the whole range."""
    ordered = states[np.lexsort((states[:, 1], states[:, 0]))]
    least_before = np.concatenate([[np.inf], np.minimum.accumulate(ordered[:, 1])[:-1]])
    front = ordered[ordered[:, 1] < least_before]
    if len(front) > _MAX_STATES:
        front = front[np.unique(np.linspace(0, len(front) - 1, _MAX_STATES).astype(int))]
    return front


def _list_lower_sets(graph: UnitGraph, sizes: np.ndarray, reads: np.ndarray) -> np.ndarray:
    """Return lower sets from the empty one to that of all units: each unit with all it waits for, and beginnings."""
    count = len(graph.units)
    closure = np.eye(count, dtype=bool)
    for number, earlier in enumerate(graph.before):
        for item in earlier:
            closure[number] |= closure[item]
    beginnings = np.tril(np.ones((count, count), dtype=bool))
    found = np.unique(np.concatenate([closure, beginnings]), axis=0)
    found = found[np.argsort(found.sum(1), kind="stable")]
    found = found[found.sum(1) < count]
    if len(found) > _MAX_SETS:
        to_keep = _find_boundary(found, reads) @ sizes
        groups = np.array_split(np.arange(len(found)), _MAX_SETS)
        found = found[[int(group[np.argmin(to_keep[group])]) for group in groups]]
    ends = np.zeros((1, count), dtype=bool)
    return np.concatenate([ends, found, ~ends])


def _find_boundary(sets: np.ndarray, reads: np.ndarray) -> np.ndarray:
    """Return the units of each set that one outside of it reads."""
    found: np.ndarray = sets & ((~sets).astype(np.float64) @ reads.astype(np.float64) > 0)
    return found
