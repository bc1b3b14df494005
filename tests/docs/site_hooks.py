"""What MkDocs asks while it builds the documentation site, by the names that it calls its hooks.

The pages are those of `site_pages.py`, whatever lies in MkDocs' own folder. Beside each page lies its Markdown.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any, Dict

from tests.docs.site_pages import lead_in_site, list_attachments, list_pages, without_words
from tests.docs.site_reference import ROOT

_CODES = "porting/diagnostics/pages/"
_pages: Dict[str, str] = {}


def on_config(config: Any) -> None:
    """Put the recipes and the packages of the reference, each by its title, below the pages that list them."""
    _pages.update(list_pages())
    below = {"Recipes": "porting/recipes/*/README.md", "Reference": "reference/[a-z]*.md"}
    for title, pattern in below.items():
        entries = next(section[title] for section in config.nav if title in section)
        entries += fnmatch.filter(_pages, pattern)


def on_files(files: Any, config: Any) -> Any:
    """Take the pages and what lies beside them, and of MkDocs' own files those of its theme."""
    from mkdocs.structure.files import File, Files  # of the extra `docs`

    there = [file for file in files if file.src_dir != config.docs_dir]
    for path, markdown in _pages.items():
        there.append(File.generated(config, path, content=markdown))
    for path in list_attachments():
        there.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return Files(there)


def on_page_markdown(markdown: str, page: Any, **_given: Any) -> str:
    """Prepare a page for MkDocs; a code's page also leads to all codes."""
    path = page.file.src_uri
    if path.startswith(_CODES):
        markdown += "\n[All codes](../../../docs/codes.md)\n"
    return without_words(lead_in_site(path, markdown))


def on_post_page(output: str, page: Any, **_given: Any) -> str:
    """Name the page's Markdown to readers and to programs."""
    twin = Path(page.file.src_uri).name
    head = f'<link rel="alternate" type="text/markdown" href="{twin}">\n</head>'
    foot = f'<p class="twin"><a href="{twin}">This page as Markdown</a></p>\n</article>'
    return output.replace("</head>", head, 1).replace("</article>", foot, 1)


def on_post_build(config: Any) -> None:
    """Write each page's Markdown beside it."""
    for path, markdown in _pages.items():
        (Path(config.site_dir) / path).write_text(markdown, "utf-8")
