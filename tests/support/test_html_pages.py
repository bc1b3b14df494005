"""A page is whole, and its title is shown and not run."""

from __future__ import annotations

from porting.support.html_pages import write_fragment, write_page, write_table


def test_a_page_has_its_title_body_and_style():
    page = write_page("<b>", ["<p>text</p>"], style=".finding { color: red; }")

    assert "<title>&lt;b&gt;</title>" in page
    assert page.index(".finding { color: red; }</style></head><body>") < page.index("<p>text</p>")
    assert page.endswith("</body></html>\n")


def test_a_part_of_another_page_leaves_the_style_of_that_page_alone():
    shown = write_fragment(write_page("a title", ["<p>text</p>"], style="body { width: 3rem; } td { color: red; }"))

    style = shown.partition("<style>")[2].partition("</style>")[0]
    assert style.startswith(".porting-page {")
    assert style.count("{") == style.count("}")
    assert ":root" not in style
    assert "body" not in style
    assert "& { width: 3rem; } td { color: red; }" in style


def test_a_part_of_another_page_takes_the_colours_of_a_notebook():
    style = write_fragment(write_page("a title", []))

    assert "--ink: var(--jp-content-font-color1, var(--vscode-editor-foreground, var(--own-ink)));" in style
    assert "prefers-color-scheme: dark" in style


def test_a_table_shows_text_as_text():
    header, row = list(write_table([("a", "b"), ("<i>", "`code`")]))[1:-1]

    assert header == '<tr class="head"><th>a</th><th>b</th></tr>'
    assert row == '<tr><td>&lt;i&gt;</td><td data-of="b"><code>code</code></td></tr>'
