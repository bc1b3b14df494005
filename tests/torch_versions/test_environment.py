"""`make torch`: tests are counted by the part that they show, and parts that a torch cannot have are not run."""

from __future__ import annotations

import pytest

from porting.support.torch_versions import PartResult
from tests.torch_versions import environment

REPORT = """
<testsuites><testsuite>
<testcase classname="tests.capture.test_tracing" name="test_a"/>
<testcase classname="tests.capture.test_tracing" name="test_b"><failure/></testcase>
<testcase classname="tests.capture.test_tracing" name="test_c"><skipped/></testcase>
<testcase classname="" name="tests.capture.test_tried_shapes"><error/></testcase>
<testcase classname="tests.engines.aot.test_engine.TestClass" name="test_d"/>
<testcase classname="tests.docs.test_docs_run" name="test_an_example"/>
</testsuite></testsuites>
"""


def test_tests_are_counted_by_part_without_those_that_were_skipped(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)

    counts = environment.read_report(report, environment.TESTS)

    assert counts == {
        "capture": PartResult(passed=1, failed=2),
        "replay": PartResult(passed=1, failed=0),
        "compiled": PartResult(passed=0, failed=0),
        "aot": PartResult(passed=1, failed=0),
    }


@pytest.mark.parametrize(("version", "parts"), [("2.8.0", ["capture", "replay"]), ("2.13.0", list(environment.TESTS))])
def test_only_what_a_torch_can_have_is_run(version, parts):
    assert [name for name in environment.TESTS if environment.can_have(version, name)] == parts


@pytest.mark.parametrize("test", [test for tests in environment.TESTS.values() for test in tests])
def test_what_is_run_exists(test):
    file, _, name = test.partition("::")

    assert (environment.ROOT / file).exists()
    assert not name or f"def {name}(" in (environment.ROOT / file).read_text("utf-8")


def test_no_version_is_said_and_is_a_failure(capsys):
    assert environment.main([]) == 2
    assert "make torch VERSION=" in capsys.readouterr().err
