"""What a finding tells its reader to do helps: the example of its page is changed so, and the finding is gone."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import List
from unittest import mock

import pytest

import porting
import porting.simulator as poptorch
from porting.diagnostics import CODES, Finding, PortingWarning, Severity
from porting.diagnostics.codes import read_page
from porting.source.checks import check_source
from porting.source.project import read_programs
from tests.diagnostics.followed_checks import CHECKS
from tests.diagnostics.followed_helps import EXCUSED, STEPS
from tests.diagnostics.test_pages import NOT_RUN, Block, blocks_of

CASES = [(code, step) for code, steps in STEPS.items() for step in steps]
EXAMPLES = {
    code: next((block for block in blocks_of(read_page(code)) if block.raises or block.warns), None) for code in CODES
}
FENCE = re.compile(r"^```python finds=(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# an example in which a check of the source finds the code, and what the page shows first instead
SHOWN = {code: dict(reversed(FENCE.findall(read_page(code)))) for code in CODES}
READ = {code: (blocks[code], blocks["none"]) for code, blocks in SHOWN.items() if code in blocks}
each_example = pytest.mark.parametrize("code", [code for code, example in EXAMPLES.items() if example is not None])


def findings_of(block: Block, folder: Path) -> List[Finding]:
    """Run a program in a folder and list the findings that it raises and warns of; another error is one."""
    file = folder / "example.py"
    file.write_text("\n" * block.line + block.source, encoding="utf-8")
    program = compile("\n" * block.line + block.source, str(file), "exec")
    names = {"__name__": "__main__", "__file__": str(file), "PortOptions": porting.PortOptions}
    names.update(FixedBatchDataset=porting.FixedBatchDataset, poptorch=poptorch)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            exec(program, names)
        except Exception as error:
            if not hasattr(error, "finding"):
                raise
            return [error.finding]
    return [warning.message.finding for warning in shown if isinstance(warning.message, PortingWarning)]


@pytest.fixture
def find(tmp_path, monkeypatch):
    """Give a function that runs a program in an empty folder and lists its findings."""
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ):
        yield lambda block: findings_of(block, tmp_path)


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("code", "step"), CASES, ids=[f"{code}: {step.words}" for code, step in CASES])
def test_the_finding_is_gone_when_the_example_is_changed_as_the_help_says(code, step, find):
    if code in NOT_RUN:
        pytest.skip(NOT_RUN[code])
    example = EXAMPLES[code]
    source = example.source
    for before, after in step.changes:
        assert before in source
        source = source.replace(before, after)

    found = find(replace(example, source=source))

    assert code not in [finding.code for finding in found], source
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


@pytest.mark.sampled(40)
@each_example
def test_each_help_of_an_example_is_followed(code, find):
    if code in NOT_RUN:
        pytest.skip(NOT_RUN[code])
    expected = EXAMPLES[code].raises or EXAMPLES[code].warns

    helps = [help for finding in find(EXAMPLES[code]) if finding.code == expected for help in finding.help]

    followed = [step.words for step in STEPS.get(code, ())] + [words for excused, words in EXCUSED if excused == code]
    assert [help for help in helps if not any(words in help for words in followed)] == []
    assert [words for words in followed if not any(words in help for help in helps)] == []


def check_program(source: str, folder: Path) -> List[Finding]:
    file = folder / "program.py"
    file.write_text(source, encoding="utf-8")
    return check_source(read_programs([str(file)]))


@pytest.mark.parametrize("code", READ)
def test_the_remedy_of_a_page_follows_the_help_that_a_check_prints(code, tmp_path):
    example, remedy = READ[code]
    followed = CHECKS[code]

    helps = [help for finding in check_program(example, tmp_path) if finding.code == code for help in finding.help]
    left = [finding.code for finding in check_program(remedy, tmp_path)]

    assert [help for help in helps if followed.words not in help and "porting recipe show" not in help] == []
    assert any(followed.words in help for help in helps)
    assert followed.gone in example
    assert followed.come in remedy
    assert not followed.gone or followed.gone not in remedy
    assert not followed.come or followed.come not in example
    assert code not in left
