"""List the versions of torch that were tested and what worked in each; `porting doctor` and a page show them.

The table is data, `torch-versions.json`: `make torch VERSION=2.8.0` tests a version and writes its row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Tuple

from porting.support.versions import read_version

__all__ = [
    "FILE",
    "PartResult",
    "TorchResults",
    "find_newest_tested",
    "find_tested",
    "is_newer_than_tested",
    "list_tested",
]

FILE = Path(__file__).with_name("torch-versions.json")


@dataclass(frozen=True)
class PartResult:
    """The numbers of tests of a part that passed and that failed."""

    passed: int
    failed: int

    def __str__(self) -> str:
        return f"{self.failed:,} of {self.passed + self.failed:,} tests fail" if self.failed else "yes"


@dataclass(frozen=True)
class TorchResults:
    """A version of torch with the results of the parts that were tested; others do not work with it."""

    version: str
    by_part: Mapping[str, PartResult]

    def says_of(self, part: str) -> str:
        """Return "yes", "no", or how many tests of the part fail."""
        return str(self.by_part.get(part, "no"))

    def has(self, part: str) -> bool:
        """Tell whether the part works: it was tested, and no test failed."""
        return self.says_of(part) == "yes"


def find_tested(version: str) -> TorchResults:
    """Return the nearest tested version: that of the same minor version, else the last before, else the first.

    >>> find_tested("2.13.1+cu130").version
    '2.13.0'
    """
    tested = list_tested()
    before = [torch for torch in tested if read_version(torch.version)[:2] <= read_version(version)[:2]]
    return before[-1] if before else tested[0]


def find_newest_tested() -> Tuple[int, int]:
    """Return the newest minor version of torch that was tested, such as (2, 13)."""
    major, minor = read_version(list_tested()[-1].version)[:2]
    return major, minor


def is_newer_than_tested(version: str) -> bool:
    """Tell whether a version of torch is of a minor version newer than all tested ones.

    >>> is_newer_than_tested("2.0.1"), is_newer_than_tested("99.0.0a0+git1234567")
    (False, True)
    """
    return read_version(version)[:2] > find_newest_tested()


def list_tested() -> List[TorchResults]:
    """List the tested versions, the oldest first."""
    rows = json.loads(FILE.read_text("utf-8"))
    return [
        TorchResults(version, {part: PartResult(**counts) for part, counts in rows[version].items()})
        for version in sorted(rows, key=read_version)
    ]
