"""Remembers what could not be compiled, and why, so that no process waits for the same fault again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ..support.atomic_files import write_atomically
from .folders import lock_file
from .identity import ExecutableKey
from .machine import find_compiler, list_versions

__all__ = ["Failures"]

_FORMAT = "porting-failures"
_MAX_BYTES = 1 << 20
_MAX_REASON = 2000


class Failures:
    """The failures of one store: a small file for each key.

    They hold for one compiler: with another, everything is tried again. Versions and processor belong to the key.
    """

    def __init__(self, programs: Path, *, report: Callable[[OSError], None]) -> None:
        """Remember in `programs`, the folder of the store; `report` is told of what cannot be written there."""
        self._folder = programs / ".failures"
        self._locks = programs / ".locks"
        self._report = report

    def note(self, key: ExecutableKey, candidate: str, reason: str) -> None:
        """Remember that `candidate` could not be compiled for `key`, and why."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(parents=True, exist_ok=True)
            with lock_file(self._locks / f"failures-{key.digest}.lock", timeout_seconds=5.0):
                path = self._find_path(key.digest)
                record = _read_record(path) or {"format": _FORMAT, "digest": key.digest, "failures": {}}
                now = time.time()
                failure = {"reason": reason[:_MAX_REASON], "when": now, "compiler": find_compiler()}
                record["failures"][candidate] = failure
                record.update(when=now, model=key.model, versions=list_versions())
                write_atomically(path, json.dumps(record).encode())
        except OSError as error:
            self._report(error)

    def read(self, digest: str) -> Dict[str, str]:
        """Return the reasons by candidate, of failures with the compiler of this process."""
        failures = (_read_record(self._find_path(digest)) or {"failures": {}})["failures"]
        return {name: item["reason"] for name, item in failures.items() if item.get("compiler") == find_compiler()}

    def read_all(self) -> Dict[str, Dict[str, Any]]:
        """Return all records by digest: `model`, `when` and `failures`, each with a `reason`.

        Those that cannot be read are left out.
        """
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return {}
        paths = [self._folder / name for name in names if name.endswith(".json") and not name.startswith(".")]
        records = {path.stem: _read_record(path) for path in paths}
        return {digest: record for digest, record in records.items() if record is not None}

    def forget(self, digest: str) -> bool:
        """Let what failed for a key be tried again; True if something was remembered."""
        try:
            self._find_path(digest).unlink()
        except OSError:
            return False
        return True

    def _find_path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def _read_record(path: Path) -> Optional[Dict[str, Any]]:
    """Read the record of a key; None for what is not one, such as a file that somebody else wrote."""
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read(_MAX_BYTES))
        is_record = record["format"] == _FORMAT
        reasons = [item["reason"] for item in record["failures"].values()]
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    return record if is_record and all(isinstance(reason, str) for reason in reasons) else None
