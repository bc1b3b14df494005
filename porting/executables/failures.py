"""Remembers what could not be compiled, and why, so that no process waits for the same fault again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Optional

from ..support.atomic_files import write_atomically
from .identity import ExecutableKey
from .locks import lock_file
from .machine import find_compiler, list_versions

__all__ = ["Failures"]

_FORMAT = "porting-failures"
_MAX_BYTES = 1 << 20
_MAX_REASON = 2000


class Failures:
    """The failures of one store: a small file for each key.

    They hold for one compiler: with another, everything is tried again.
    """

    def __init__(self, programs: Path) -> None:
        """Remember in `programs`, the folder of the store."""
        self._folder = programs / ".failures"
        self._locks = programs / ".locks"

    def note(self, key: ExecutableKey, candidate: str, reason: str) -> None:
        """Add a failure; OSError if it cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._locks.mkdir(parents=True, exist_ok=True)
        with lock_file(self._locks / f"failures-{key.digest}.lock", timeout_seconds=5.0):
            path = self._path_of(key.digest)
            record = _read(path) or {"format": _FORMAT, "digest": key.digest, "failures": {}}
            now = time.time()
            failure = {"reason": reason[:_MAX_REASON], "when": now, "compiler": find_compiler()}
            record["failures"][candidate] = failure
            record.update(when=now, model=key.model, versions=list_versions())
            write_atomically(path, json.dumps(record).encode())

    def read(self, digest: str) -> Dict[str, str]:
        """Return the reasons by candidate, of failures with the compiler of this process."""
        record = _read(self._path_of(digest))
        if record is None:
            return {}
        own = find_compiler()
        return {name: item["reason"] for name, item in record["failures"].items() if item.get("compiler") == own}

    def read_all(self) -> Dict[str, Dict[str, Any]]:
        """Return all records by digest; those that cannot be read are left out."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return {}
        paths = [self._folder / name for name in names if name.endswith(".json") and not name.startswith(".")]
        records = {path.stem: _read(path) for path in paths}
        return {digest: record for digest, record in records.items() if record is not None}

    def forget(self, digest: str) -> bool:
        """Remove the record of a key; True if there was one."""
        try:
            self._path_of(digest).unlink()
        except OSError:
            return False
        return True

    def _path_of(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def _read(path: Path) -> Optional[Dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    is_known = isinstance(record, dict) and record.get("format") == _FORMAT
    return record if is_known and _are_failures(record.get("failures")) else None


def _are_failures(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(item, dict) and isinstance(item.get("reason"), str) for item in value.values()
    )
