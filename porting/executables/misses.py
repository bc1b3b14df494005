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
from .store import ExecutableStore, StoredEntry

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
    own = sources if sources is not None else record_sources()
    found: List[Tuple[Manifest, List[Change]]] = []
    for manifest in _list_candidates(store, key, own):
        try:
            explanation = read_explanation(store.programs / manifest.digest, manifest)
            if _is_alike(manifest, explanation["components"], key):
                changes = explain(explanation, {"components": key.components, "sources": own})
                found += [(manifest, changes)] if changes else []
        except (DamagedEntryError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
            continue  # what somebody else wrote explains nothing
    if not found:
        return None
    nearest, changes = min(found, key=lambda item: len(item[1]))
    return MissReport(nearest.digest, nearest.created, tuple(changes))


def _list_candidates(store: ExecutableStore, key: ExecutableKey, sources: Mapping[str, Any]) -> List[Manifest]:
    """Return the earlier executables that are probably of the same model, the likeliest first."""

    def rank(entry: StoredEntry) -> Tuple[Any, ...]:
        assert entry.manifest is not None
        model, sections = entry.manifest.model, entry.manifest.sections
        same_sections = sum(sections.get(name) == value for name, value in key.sections.items())
        is_other_model = bool(key.model) and model.get("name") != key.model
        return is_other_model, model.get("program") != sources.get("program"), -same_sections, -entry.last_used

    known = [entry for entry in store.list_entries() if entry.manifest is not None and entry.digest != key.digest]
    manifests = [entry.manifest for entry in sorted(known, key=rank) if entry.manifest is not None]
    mode = key.components["graph"]["mode"]
    return [manifest for manifest in manifests if manifest.model.get("mode") == mode][:_MAX_COMPARED]


def _is_alike(manifest: Manifest, old: Mapping[str, Any], key: ExecutableKey) -> bool:
    """Tell whether two executables are of one model, as far as their operators and parameters tell; the name helps."""
    left, right = _count_traits(old), _count_traits(key.components)
    share = sum((left & right).values()) / max(sum(left.values()), sum(right.values()), 1)
    return share >= (_LEAST_OF_CLASS if key.model and manifest.model.get("name") == key.model else _LEAST_LIKENESS)


def _count_traits(components: Mapping[str, Any]) -> Counter[Any]:
    parameters = components["tensors"]["parameters"]
    traits = [name for name, _arguments in components["graph"]["operators"]]
    return Counter([*traits, *(item[0] for item in parameters), *((item[0], tuple(item[1])) for item in parameters)])
