"""Every code that a rule reports has its words, and no other has."""

from __future__ import annotations

import re
from pathlib import Path

import porting.source.rules
from porting.diagnostics import CODES
from porting.source.rules.wordings import read_wordings

FOLDER = Path(porting.source.rules.__file__).parent
WORDINGS = read_wordings()


def test_the_codes_that_rules_report_are_those_with_a_wording():
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py") if path.name != "wordings.py"]
    reported = {code for text in texts for code in re.findall(r'"([A-Z]\d{3})"', text)}

    assert reported == set(WORDINGS)


def test_every_code_exists():
    assert set(WORDINGS) <= set(CODES)
