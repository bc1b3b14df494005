"""The documentation site has every page with its Markdown beside it, and its links lead somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from tests.docs import site
from tests.docs.site_pages import lead_in_site, list_attachments, list_pages, without_words
from tests.docs.site_reference import ROOT

needs_builder = pytest.mark.skipif(not site.can_build(), reason="the extra `docs` is not installed")


class Addresses(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, page):
        super().__init__()
        self.references, self.anchors = [], set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors.update(filter(None, [given.get("id"), given.get("name")]))
        self.references += [given[name] for name in ("href", "src") if given.get(name)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    assert site.build_site(str(folder)) == 0
    return folder


def navigation():
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    for section in yaml.safe_load(text)["nav"]:
        for entries in section.values():
            yield from (page for entry in entries for page in (entry.values() if isinstance(entry, dict) else [entry]))


def test_every_page_of_docs_has_one_place():
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    placed = [page for page in navigation() if page.startswith("docs/")]

    assert sorted(placed) == sorted({*written, "docs/decisions/README.md", "docs/first-port.ipynb.md"})


@pytest.mark.parametrize(
    ("page", "link", "leads_to"),
    [
        ("docs/checking.md", "[a](fit.md#callbacks)", "[a](fit.md#callbacks)"),
        ("docs/notebooks.md", "[a](first-port.ipynb)", "[a](first-port.ipynb.md)"),
        ("docs/trainers.md", "[a](../porting/recipes/trainers)", "[a](../porting/recipes/trainers/README.md)"),
        ("README.md", "[a](porting/recipes)", "[a](porting/recipes/README.md)"),
        ("README.md", "[a](porting/models)", "[a](reference/models.md)"),
        ("README.md", "[a](https://example.org)", "[a](https://example.org)"),
        ("README.md", "```text\n[a](LICENSE)\n```", "```text\n[a](LICENSE)\n```"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site(page, link, leads_to):
    assert lead_in_site(page, link) == leads_to


def test_the_words_of_a_fence_are_for_tests():
    assert without_words("```python raises=C001\nx\n```\n") == "```python\nx\n```\n"


@pytest.mark.slow
@needs_builder
def test_the_reference_has_every_public_name():
    import porting

    pages = [text for path, text in list_pages().items() if path.startswith("reference/")]

    assert [name for name in porting.__all__ if not any(f"\n## {name}\n" in text for text in pages)] == []


def test_without_what_builds_it_the_site_is_skipped(monkeypatch, capsys):
    monkeypatch.setattr(site, "can_build", lambda: False)

    assert site.run([]) == 0
    assert "pip install -e '.[docs]'" in capsys.readouterr().out


@pytest.mark.slow
@needs_builder
def test_each_page_is_built_with_its_markdown_beside_it(built):
    missing = [
        path
        for path in [*list_pages(), *list_attachments()]
        if not (built / path).exists() or path.endswith(".md") and not html_of(built / path).exists()
    ]

    assert missing == []


def html_of(markdown: Path) -> Path:
    return markdown.with_name("index.html") if markdown.name == "README.md" else markdown.with_suffix(".html")


@pytest.mark.slow
@needs_builder
def test_what_a_page_refers_to_is_in_the_site(built):
    pages = {page.resolve(): Addresses(page) for page in built.rglob("*.html")}
    broken = []

    for page, addresses in pages.items():
        for reference in addresses.references:
            path, _, anchor = unquote(reference).partition("#")
            target = (page.parent / path).resolve() if path else page
            is_there = target.exists() and (not anchor or anchor in pages[target].anchors)
            if page.name != "404.html" and not reference.startswith(("http", "data:", "#__")) and not is_there:
                broken.append((page.name, reference))

    assert broken == []


@pytest.mark.slow
@needs_builder
def test_a_page_fetches_nothing_from_elsewhere(built):
    fetched = [
        address
        for page in built.rglob("*.html")
        for address in re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)', page.read_text("utf-8"))
    ]

    assert fetched == []
