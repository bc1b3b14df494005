"""Tables of text that lie beside this file: what is known of libraries, and the words of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

__all__ = ["read_sections"]


def read_sections(name: str) -> Dict[str, List[str]]:
    """Read the lines of each section of a file, by what stands in the brackets above them.

    >>> read_sections("wordings.txt")["C010"]
    ['a port needs a `forward` that prints nothing', 'return the tensor and print it after the call']
    """
    sections: Dict[str, List[str]] = {}
    for line in (Path(__file__).parent / name).read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line[1:].partition("]")[0], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections
