"""Describe everything that the programs of an executable depend on, and compute the hash of that.

Keys and explanations are made of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Dict, List, Mapping, Tuple

__all__ = ["EXPLAINED", "ExecutableKey", "compute_digest", "to_canonical_json"]

EXPLAINED = "explained"
"""The section of components that explains the others and is no part of the identity, such as places in the source."""


@dataclass(frozen=True, eq=False)
class ExecutableKey:
    """What finds an executable again; `components` are plain values, a section for each kind of thing.

    `opaque` names values of the graph that cannot be written down: an executable with such a one is for this process
    only, and the store neither keeps nor finds it.

    >>> key = ExecutableKey({"engine": {"name": "aot"}, "explained": {"model": "Net"}})
    >>> key.digest == ExecutableKey({"engine": {"name": "aot"}}).digest
    True
    >>> key.for_engine("auto").components["engine"]["name"], key.for_engine("auto").digest == key.digest
    ('auto', False)
    """

    components: Mapping[str, Any]
    opaque: Tuple[str, ...] = ()
    _known: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def sections(self) -> Dict[str, str]:
        """The hash of each section that belongs to the identity."""
        return {
            name: self._known.get(name) or compute_digest(value)
            for name, value in sorted(self.components.items())
            if name != EXPLAINED
        }

    @cached_property
    def digest(self) -> str:
        """The name of the executable: 32 hexadecimal digits."""
        return compute_digest(self.sections)

    @property
    def explained(self) -> Mapping[str, Any]:
        """What explains the identity: places, names, values that programs take as arguments."""
        explained: Mapping[str, Any] = self.components.get(EXPLAINED, {})
        return explained

    @property
    def model(self) -> str:
        """The name of the model's class, as far as known."""
        return str(self.explained.get("model", ""))

    @property
    def source_files(self) -> List[str]:
        """The files that the operators of the graph stand in."""
        return sorted({str(place[0]) for place in self.explained.get("places", ()) if place})

    def for_engine(self, engine: str) -> ExecutableKey:
        """Return the key of the same step for another engine; nothing of the graph is hashed again."""
        settings = {**self.components.get("engine", {}), "name": engine}
        known = {name: value for name, value in self.sections.items() if name != "engine"}
        return ExecutableKey({**self.components, "engine": settings}, self.opaque, known)


def to_canonical_json(value: object) -> bytes:
    """Return plain values as JSON that is the same in every process, whatever the order of dictionaries."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def compute_digest(value: object) -> str:
    """Return the hash of plain values: that of a section, or of all sections' hashes, which names the executable."""
    return hashlib.sha256(to_canonical_json(value)).hexdigest()[:32]
