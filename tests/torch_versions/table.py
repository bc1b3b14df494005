"""The table *what works where*: a row for each version of torch that was tested, as data and as its page shows it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from porting.support import torch_versions
from porting.support.torch_versions import PartResult, list_tested
from porting.support.versions import read_version

PARTS = ("capture", "replay", "compiled", "aot", "hardware path")


def write_tested(version: str, results: Mapping[str, PartResult], *, page: Path) -> None:
    """Write the row of a version in the place of what was known of it, and the table that `page` shows."""
    before = make_table()
    rows = {torch.version: torch.by_part for torch in list_tested()}
    rows[version] = results
    document = {
        name: {part: asdict(result) for part, result in rows[name].items()} for name in sorted(rows, key=read_version)
    }
    torch_versions.FILE.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    page.write_text(page.read_text("utf-8").replace(before, make_table()), "utf-8")


def make_table() -> str:
    """Make the page's table: versions of which tests say the same share a row."""
    rows: Dict[Tuple[str, ...], List[str]] = {}
    for torch in list_tested():
        rows.setdefault(tuple(map(torch.says_of, PARTS)), []).append(torch.version)
    lines = [("torch", *PARTS), ("---",) * (1 + len(PARTS))]
    lines += [(", ".join(versions), *cells) for cells, versions in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
