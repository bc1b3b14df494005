"""The documentation site has the layout of the repository, so the links of a page lead there as they are.

A page is a file of Markdown, or is made while the site is built: the gallery of recipes, the reference, the notebook,
and each file of source that a page links to. No text is kept twice.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

from tests.docs.site_reference import REFERENCE, ROOT, make_reference

__all__ = ["GALLERY", "lead_in_site", "list_attachments", "list_pages", "without_words"]

GALLERY = "porting/recipes/README.md"

_WRITTEN = ("README.md", "CHANGELOG.md", "docs/**/*.md", "porting/diagnostics/pages/*.md", "porting/recipes/*/*.md")
_ATTACHED = ("docs/*.svg", "docs/*.txt", "docs/*.ipynb", "porting/recipes/*/pictures/*.png")
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)(?=[)#])")
_FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)


def list_pages() -> Dict[str, str]:
    """List the pages by their paths in the repository, with their Markdown."""
    pages = {path: (ROOT / path).read_text("utf-8") for path in _find(*_WRITTEN)}
    sources = sorted({path for page in pages for path in _linked_sources(page, pages[page])})
    pages.update({f"{path}.md": _show_source(path) for path in sources})
    pages.update(make_reference())
    pages[GALLERY] = _make_gallery()
    return pages


def list_attachments() -> List[str]:
    """List the files that lie beside the pages: pictures, the notebook, sources, and what assistants read."""
    sources = {path for page in _find(*_WRITTEN) for path in _linked_sources(page, (ROOT / page).read_text("utf-8"))}
    return sorted({*_find(*_ATTACHED), *sources})


def lead_in_site(page: str, markdown: str) -> str:
    """Let the links of a page that lead to folders and sources lead to the pages of these."""
    folder = posixpath.dirname(page)

    def lead(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        return posixpath.relpath(_page_of(path), folder or ".")

    return _outside_fences(markdown, lambda text: _LINK.sub(lead, text))


def without_words(markdown: str) -> str:
    """Leave out the words after a fence's language, which are for tests and which Markdown's readers do not know."""
    return _FENCE.sub(r"\1", markdown)


def _find(*patterns: str) -> List[str]:
    return [path.relative_to(ROOT).as_posix() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _page_of(path: str) -> str:
    if (ROOT / path).is_dir():
        is_written = (ROOT / path / "README.md").exists() or f"{path}/README.md" == GALLERY
        return f"{path}/README.md" if is_written else f"{REFERENCE}/{posixpath.basename(path)}.md"
    return path if path.endswith((".md", ".png", ".svg", ".txt")) else f"{path}.md"


def _linked_sources(page: str, markdown: str) -> Iterator[str]:
    """Name the files without Markdown that a page links to: programs, the notebook, the licence."""
    for target in _LINK.findall(re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if (ROOT / path).is_file() and _page_of(path) != path:
            yield path


def _show_source(path: str) -> str:
    text = (ROOT / path).read_text("utf-8")
    if path.endswith(".ipynb"):
        return "\n\n".join(map(_show_cell, json.loads(text)["cells"]))
    language = "python" if path.endswith(".py") else "text"
    return f"# {posixpath.basename(path)}\n\n`{path}`\n\n```{language}\n{text}```\n"


def _show_cell(cell: Dict[str, Any]) -> str:
    source = "".join(cell["source"])
    return source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"


def _make_gallery() -> str:
    """Make a card of each recipe: its first picture, its name and what it shows."""
    cards = [_make_card(ROOT / path) for path in _find("porting/recipes/*/README.md")]
    text = "Each recipe is a whole port in small steps that run. [How to use one](../../docs/recipes.md).\n\n"
    return f'# Recipes\n\n{text}<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"


def _make_card(story: Path) -> str:
    name = story.parent.name
    title = story.read_text("utf-8").splitlines()[0].lstrip("# ")
    shown = ast.get_docstring(ast.parse((story.parent / "__init__.py").read_text("utf-8"))) or ""
    picture = min(story.parent.glob("pictures/*.png"), key=lambda path: (path.stem == "losses", path.stem))
    lines = [
        f"-   [![{title}]({name}/pictures/{picture.name})]({name}/README.md)",
        "",
        f"    **[{title}]({name}/README.md)**",
        "",
        f"    {shown.splitlines()[0]}",
        "",
    ]
    return "\n".join(lines)
