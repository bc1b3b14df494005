"""Explain that no executable was found for a model compiled before: the nearest earlier one, and what changed."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..diagnostics import Finding
from .changes import Change
from .entry import DamagedEntryError, Manifest, read_explanation
from .explanations import explain
from .identity import ExecutableKey
from .sources import record_sources
from .store import ExecutableStore

__all__ = ["MissReport", "explain_miss"]

# So many earlier executables are looked at in detail, of all that there are.
_MAX_COMPARED = 6
# So much of two graphs must be the same for one to explain the other.
_LEAST_LIKENESS, _LEAST_OF_CLASS = 0.5, 0.25
_MAX_NOTES = 12


@dataclass(frozen=True)
class MissReport:
    """What changed since the executable `digest` was kept at the time `created`, most telling first."""

    digest: str
    created: float
    changes: Tuple[Change, ...]

    @property
    def message(self) -> str:
        """The finding's message, as in "recompiled: dropout p 0.1 -> 0.2 at config.py:14"."""
        more = len(self.changes) - 1
        others = f" and {more} more change{'s' if more > 1 else ''}" if more else ""
        return f"recompiled: {self.changes[0].text}{others}"

    def to_dicts(self) -> List[Dict[str, Any]]:
        """Return the changes as plain values: what a manifest keeps as `because`."""
        return [change.to_dict() for change in self.changes]

    def to_finding(self) -> Finding:
        """Return finding E006, at the line that made the first change where that is known."""
        notes = [f"also: {change.text}" for change in self.changes[1:_MAX_NOTES]]
        hidden = len(self.changes) - _MAX_NOTES
        notes += [f"and {hidden} more; `porting cache why --last` lists all"] if hidden > 0 else []
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.created))
        first = self.changes[0]
        place = first.place if first.file and os.path.isfile(first.file) else None
        return Finding(
            "E006",
            message=self.message,
            place=place,
            notes=(*notes, f"compared with the executable {self.digest[:8]} of {when}"),
            help="nothing need be done; with the earlier settings the earlier executable is found again",
        )


def explain_miss(
    store: ExecutableStore, key: ExecutableKey, *, sources: Optional[Mapping[str, Any]] = None
) -> Optional[MissReport]:
    """Compare `key` with the executable in the store that least has changed since; None if none is of the same model.

    `sources` is what `record_sources` returned, which is called without it. Damaged entries are passed over.
    """
    present = sources if sources is not None else record_sources()
    found: List[Tuple[Manifest, List[Change]]] = []
    for manifest in _list_candidates(store, key, present):
        try:
            explanation = read_explanation(store.programs / manifest.digest, manifest)
            has_name = bool(key.model) and manifest.model.get("name") == key.model
            least = _LEAST_OF_CLASS if has_name else _LEAST_LIKENESS
            if _measure_likeness(explanation["components"], key.components) >= least:
                changes = explain(explanation, {"components": key.components, "sources": present})
                found += [(manifest, changes)] if changes else []
        except (DamagedEntryError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
            continue  # what somebody else wrote explains nothing
    if not found:
        return None
    nearest, changes = min(found, key=lambda item: len(item[1]))
    return MissReport(nearest.digest, nearest.created, tuple(changes))


def _list_candidates(store: ExecutableStore, key: ExecutableKey, sources: Mapping[str, Any]) -> List[Manifest]:
    """Return the earlier executables that are probably of the same model, the likeliest first."""
    ranked = []
    for entry in store.list_entries():
        manifest = entry.manifest
        if manifest is None or entry.digest == key.digest:
            continue
        if manifest.model.get("mode") == key.components["graph"]["mode"]:
            num_same = sum(manifest.sections.get(name) == value for name, value in key.sections.items())
            is_other_model = bool(key.model) and manifest.model.get("name") != key.model
            is_other_program = manifest.model.get("program") != sources.get("program")
            ranked.append(((is_other_model, is_other_program, -num_same, -entry.last_used), manifest))
    return [manifest for _rank, manifest in sorted(ranked, key=lambda item: item[0])[:_MAX_COMPARED]]


def _measure_likeness(*both: Mapping[str, Any]) -> float:
    """Return how much of two steps is the same, as far as their operators and parameters tell."""
    traits = []
    for components in both:
        parameters = components["tensors"]["parameters"]
        found = Counter(name for name, _arguments in components["graph"]["operators"])
        found.update(trait for name, shape, *_ in parameters for trait in (name, (name, tuple(shape))))
        traits.append(found)
    left, right = traits
    return sum((left & right).values()) / max(sum(left.values()), sum(right.values()), 1)
