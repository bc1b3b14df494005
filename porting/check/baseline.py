"""A file of findings that are known, so that only new ones are told: for code that is older than its preflight.

A finding is known again by its code, its file and the text of its line, so that lines may move. Of the same text as
many are known as there were.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
from collections import Counter
from pathlib import Path
from typing import Any, Iterable, List, Tuple
from typing import Counter as CounterOf

from porting.diagnostics import Finding, PortingError

__all__ = ["divide_known", "hash_finding", "write_baseline"]

_VERSION = 1

Key = Tuple[str, str, str]


def write_baseline(path: Path, findings: Iterable[Finding]) -> None:
    """Write the findings into the file `path`; PortingError X007 where it cannot be written."""
    counts = Counter(_find_key(finding, path.parent) for finding in findings)
    entries = [
        {"code": code, "file": file, "text": text, "count": number}
        for (code, file, text), number in sorted(counts.items())
    ]
    document = {"porting_baseline": _VERSION, "findings": entries}
    try:
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise PortingError.of("X007", message=f"the baseline `{path}` cannot be written: {error.strerror}") from error


def divide_known(path: Path, findings: Iterable[Finding]) -> Tuple[List[Finding], List[Finding], int]:
    """Divide findings into new ones and those of the baseline, and count the entries of it that were not found.

    Raises PortingError X007 where the file cannot be read or is no baseline.
    """
    left = _read_baseline(path)
    new: List[Finding] = []
    known: List[Finding] = []
    for finding in findings:
        key = _find_key(finding, path.parent)
        is_known = left[key] > 0
        left[key] -= is_known
        (known if is_known else new).append(finding)
    return new, known, sum((+left).values())


def hash_finding(finding: Finding, folder: Path) -> str:
    """Return what a finding is known by, hashed: it stays the same when lines move."""
    return hashlib.sha256("\0".join(_find_key(finding, folder)).encode("utf-8", "replace")).hexdigest()[:32]


def _find_key(finding: Finding, folder: Path) -> Key:
    place = finding.place
    if place is None:
        return finding.code, "", str(finding.message)
    linecache.checkcache(place.file)
    text = " ".join(linecache.getline(place.file, place.line).split())
    file = os.path.relpath(place.file, folder).replace(os.sep, "/")
    return finding.code, file, text or str(finding.message)


def _read_baseline(path: Path) -> CounterOf[Key]:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        if document["porting_baseline"] != _VERSION:
            raise ValueError(f"it is of version {document['porting_baseline']}, and {_VERSION} can be read")
        return Counter(
            {(entry["code"], entry["file"], entry["text"]): int(entry["count"]) for entry in document["findings"]}
        )
    except OSError as error:
        fault = error.strerror or type(error).__name__
    except (KeyError, TypeError):
        fault = "it is no baseline"
    except ValueError as error:  # JSON's errors are some
        fault = str(error)
    raise PortingError.of(
        "X007",
        message=f"the baseline `{path}` cannot be read: {fault}",
        help=f"write it: `porting check PROGRAM --baseline {path} --write-baseline`",
    )
