"""Show objects in notebooks by the pages that commands write of them; a page's maker is loaded when it is asked for."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any, Callable

from porting.diagnostics import PortingError

__all__ = ["show_as_page"]


def show_as_page(writer: str) -> Callable[[Any], str]:
    """Make the method `_repr_html_` of a class, of which `writer` writes a page: "module:function".

    Where an extra is missing that the page needs, the text of the object is shown.
    """

    def show(shown: object) -> str:
        pages = importlib.import_module("porting.support.html_pages")
        module, _, function = writer.partition(":")
        try:
            page = getattr(importlib.import_module(module), function)(shown)
        except PortingError as error:
            if error.code != "X001":
                raise
            page = pages.write_page("", [f"<pre>{escape(str(shown))}</pre>"])
        return str(pages.write_fragment(page))

    return show
