"""The pages that explain the codes, one Markdown file each."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import List

from porting.diagnostics.codes import CODES

__all__ = ["PAGES_FOLDER", "read_page", "suggest_names"]

PAGES_FOLDER = Path(__file__).with_name("pages")
"""Where the pages lie, each named after its code."""

# the share of letters in common from which on two names are taken for one mistyped
_CLOSE = 0.6


def read_page(code: str) -> str:
    """Read the page of a code as Markdown.

    >>> read_page("L001").splitlines()[0]
    '# L001: loss-outside-forward'
    """
    return (PAGES_FOLDER / f"{code}.md").read_text(encoding="utf-8")


def suggest_names(name: str) -> List[str]:
    """Suggest the codes and slugs that somebody who wrote `name` may have meant, at most five.

    >>> suggest_names("loss-outside-fwd")
    ['loss-outside-forward']
    """
    wanted = name.strip().lower()
    names = [known for code in CODES.values() for known in (code.code, code.slug)]
    likeness = {known: difflib.SequenceMatcher(None, wanted, known.lower()).ratio() for known in names}
    close = sorted((known for known in names if likeness[known] >= _CLOSE), key=lambda known: -likeness[known])
    containing = [known for known in names if wanted and wanted in known.lower()]
    return list(dict.fromkeys(close + containing))[:5]
