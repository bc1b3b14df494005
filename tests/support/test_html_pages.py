"""A page is whole, and its title is shown and not run."""

from __future__ import annotations

from porting.support.html_pages import write_page


def test_a_page_has_its_title_body_and_style():
    page = write_page("<b>", ["<p>text</p>"], style=".finding { color: red; }")

    assert "<title>&lt;b&gt;</title>" in page
    assert page.index(".finding { color: red; }</style></head><body>") < page.index("<p>text</p>")
    assert page.endswith("</body></html>\n")
