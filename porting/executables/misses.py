"""Why no executable was found although the model was compiled before: the nearest earlier one, and what changed."""

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
_LEAST_LIKENESS = 0.5
_SAME_CLASS = 0.25
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

    def finding(self) -> Finding:
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
    own = sources if sources is not None else record_sources()
    best: Optional[Tuple[Manifest, List[Change]]] = None
    for manifest in _list_candidates(store, key, own):
        folder = store.programs / manifest.digest
        try:
            explanation = read_explanation(folder, manifest)
            if (
                _measure_likeness(explanation["components"], key.components) + _score_class(manifest, key)
                < _LEAST_LIKENESS
            ):
                continue
            changes = explain(explanation, {"components": key.components, "sources": own})
        except (DamagedEntryError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
            continue  # what somebody else wrote explains nothing
        if changes and (best is None or len(changes) < len(best[1])):
            best = (manifest, changes)
    return MissReport(best[0].digest, best[0].created, tuple(best[1])) if best is not None else None


def _list_candidates(store: ExecutableStore, key: ExecutableKey, sources: Mapping[str, Any]) -> List[Manifest]:
    """Return the earlier executables that are probably of the same model, the likeliest first."""
    mode, num_operators = key.components["graph"]["mode"], len(key.components["graph"]["operators"])

    def rank(item: Tuple[Manifest, float]) -> Tuple[Any, ...]:
        manifest, last_used = item
        count = manifest.model.get("num_operators")
        distance = abs(count - num_operators) if isinstance(count, int) else num_operators
        same_sections = sum(manifest.sections.get(name) == value for name, value in key.sections.items())
        is_other_model = bool(key.model) and manifest.model.get("name") != key.model
        is_other_program = manifest.model.get("program") != sources.get("program")
        return is_other_model, is_other_program, distance > 0, -same_sections, -last_used

    known = [
        (entry.manifest, entry.last_used)
        for entry in store.entries()
        if entry.manifest is not None and entry.digest != key.digest and entry.manifest.model.get("mode") == mode
    ]
    return [manifest for manifest, _last_used in sorted(known, key=rank)[:_MAX_COMPARED]]


def _measure_likeness(old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    """Return how much two graphs have in common, from 0 to 1: half of it operators, half of it parameters."""
    operators = [Counter(name for name, _arguments in of["graph"]["operators"]) for of in (old, new)]
    parameters = [Counter((item[0], tuple(item[1])) for item in of["tensors"]["parameters"]) for of in (old, new)]
    names = [Counter(item[0] for item in of["tensors"]["parameters"]) for of in (old, new)]
    return (_measure_share(*operators) + (_measure_share(*parameters) + _measure_share(*names)) / 2) / 2


def _score_class(manifest: Manifest, key: ExecutableKey) -> float:
    return _SAME_CLASS if key.model and manifest.model.get("name") == key.model else 0.0


def _measure_share(left: Counter[Any], right: Counter[Any]) -> float:
    most = max(sum(left.values()), sum(right.values()))
    return sum((left & right).values()) / most if most else 1.0
