"""The index of all pages, in the form of llms.txt (https://llmstxt.org), is made from the pages and from the command.

Its sections are those of the documentation site. After a change of a page's beginning,
`python -m tests.docs.llms_index` writes the index again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, List, Tuple

from porting.cli import STATUSES

DOCS = Path(__file__).parents[2] / "docs"
INDEX = DOCS / "llms.txt"
ASSISTANT = DOCS / "porting-with-an-assistant.md"
SITE = DOCS.parent / "mkdocs.yml"


def make_index() -> str:
    """Make the index: what this is, what decides, and the pages in sections."""
    title, summary = _read_beginning(DOCS.parent / "README.md")
    lines = [f"# {title}", "", f"> {summary}", "", *_say_what_decides()]
    for name, pages in _iter_sections():
        lines += ["", f"## {name}", "", *map(_name_page, pages)]
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


def _iter_sections() -> Iterator[Tuple[str, List[str]]]:
    """Iterate over the sections of the site with their pages, as paths from here."""
    for section in re.split(r"^  - ", SITE.read_text("utf-8").split("\nnav:\n")[1], flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^ +- docs/(\S+\.md)$", section, re.MULTILINE)
        yield section.split(":")[0], [page for page in pages if (DOCS / page).exists()]


def _name_page(page: str) -> str:
    title, sentence = _read_beginning(DOCS / page)
    return f"- [{title}]({page}): {sentence}"


def _read_beginning(path: Path) -> Tuple[str, str]:
    """Return a page's title and the first sentence or heading below it, without links."""
    title, first, *_others = path.read_text("utf-8").split("\n\n")
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.lstrip("# ").split()))
    return title.lstrip("# "), re.sub(r":$", ".", re.split(r"(?<=[.?!]) (?=[A-Z`*])", text)[0])


if __name__ == "__main__":
    INDEX.write_text(make_index(), "utf-8")
