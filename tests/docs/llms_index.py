"""The index of all pages, in the form of llms.txt (https://llmstxt.org), is made from the pages and from the command.

After a change of a page's beginning, `python -m tests.docs.llms_index` writes the index again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from porting.cli import STATUSES

DOCS = Path(__file__).parents[2] / "docs"
INDEX = DOCS / "llms.txt"
ASSISTANT = DOCS / "porting-with-an-assistant.md"

# pages that are not named stand under "More"
SECTIONS: Dict[str, Tuple[str, ...]] = {
    "Port a project": ("porting-with-an-assistant", "converting", "porting-guide", "recipes", "trainers", "fit"),
    "Check and prove": ("checking", "codes", "verifying", "finding-nan-and-time", "planning"),
    "Train": ("checkpoints", "logging", "notebooks", "operators-and-remedies", "custom-operators", "running-programs"),
    "Look up": ("command-line", "glossary", "simulator-coverage", "simulator-differences", "torch-versions"),
}


def make_index() -> str:
    """Make the index: what this is, what decides, and the pages in sections."""
    title, summary = _read_beginning(DOCS.parent / "README.md")
    named = [stem for stems in SECTIONS.values() for stem in stems]
    others = sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in named)
    sections = {**SECTIONS, "More": (*others, "decisions/README")}
    lines = [f"# {title}", "", f"> {summary}", "", *_say_what_decides()]
    for name, stems in sections.items():
        lines += ["", f"## {name}", "", *(_name_page(stem) for stem in stems)]
    return "\n".join([*lines, ""])


def _say_what_decides() -> Iterator[str]:
    yield "Every verb of `porting` ends with one of these statuses (`porting run` with the program's):"
    yield ""
    yield from (f"- {status}: {meaning}" for status, meaning in STATUSES.items())
    yield ""
    yield "`--format json` prints data. These fields decide:"
    yield ""
    table = ASSISTANT.read_text("utf-8").split("## What to read in the answers")[1].split("\n## ")[0]
    for verb, field, meaning in re.findall(r"^\| (`\w+`) \| (.+?) \| (.+) \|$", table, re.MULTILINE):
        yield f"- {verb} {field}: {meaning}"


def _name_page(stem: str) -> str:
    title, sentence = _read_beginning(DOCS / f"{stem}.md")
    return f"- [{title}]({stem}.md): {sentence}"


def _read_beginning(path: Path) -> Tuple[str, str]:
    """Return a page's title and the first sentence below it, without links."""
    paragraphs: List[str] = path.read_text("utf-8").split("\n\n")
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[1].split()))
    return paragraphs[0].lstrip("# "), re.sub(r":$", ".", re.split(r"(?<=[.?!]) (?=[A-Z`*])", text)[0])


if __name__ == "__main__":
    INDEX.write_text(make_index(), "utf-8")
