"""A SARIF log is valid, names files as code hosts do, and knows a finding again whose line has moved."""

from __future__ import annotations

from porting.check.report import Report
from porting.check.sarif import make_sarif
from porting.diagnostics import CODES, Finding, Place

from .conftest import PROGRAM
from .sarif_rules import require_sarif


def results_of(findings, program="train.py"):
    log = make_sarif(Report(findings, program=program))
    require_sarif(log)
    return log["runs"][0]["results"]


def test_a_log_of_every_code_is_valid(program):
    log = make_sarif(Report([Finding(code, place=Place(program, 3, 1)) for code in CODES], program=program))

    require_sarif(log)
    assert len(log["runs"][0]["tool"]["driver"]["rules"]) == len(CODES)


def test_a_log_without_findings_is_valid():
    require_sarif(make_sarif(Report()))


def test_a_result_has_its_place_level_and_source(findings):
    (result, *_others) = results_of(findings)

    assert (result["ruleId"], result["level"]) == ("L002", "error")
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert physical["region"] == {
        "startLine": 6,
        "startColumn": 12,
        "endLine": 6,
        "endColumn": 34,
        "snippet": {"text": "    loss = criterion(model(x), y)"},
    }
    assert result["message"]["text"].endswith("help: reduce it: `loss.mean()`")


def test_a_finding_without_a_place_is_the_programs(findings):
    *_others, result = results_of(findings)

    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert "locations" not in results_of([Finding("B006")], program="a model")[0]


def test_names_of_files_are_uris(program, tmp_path):
    folder = tmp_path / "my ports"
    folder.mkdir()
    (folder / "ö.py").write_text("x = 1\n")

    inside, outside = results_of([Finding("L002", place=Place(file, 1)) for file in ("my ports/ö.py", "/no/such.py")])

    assert inside["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my%20ports/%C3%B6.py"
    assert outside["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///no/such.py"}


def test_a_finding_is_known_again_when_its_line_has_moved(program, tmp_path):
    before = results_of([Finding("C001", place=Place(program, 8))])[0]["partialFingerprints"]
    (tmp_path / program).write_text("\n\n" + PROGRAM)

    assert results_of([Finding("C001", place=Place(program, 10))])[0]["partialFingerprints"] == before
    assert results_of([Finding("C001", place=Place(program, 9))])[0]["partialFingerprints"] != before


def test_a_cell_of_a_notebook_is_its_file():
    (result,) = results_of([Finding("C001", place=Place("look.ipynb:cell 3", 2, 1))])

    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "look.ipynb"
    assert physical["region"] == {"startLine": 1}
    assert "in cell 3, line 2" in result["message"]["text"]


def test_a_failure_is_a_notification_of_the_run():
    log = make_sarif(Report(failures=[Finding("E021", "loading `train.py:make` failed", help="run it")]))

    require_sarif(log)
    (invocation,) = log["runs"][0]["invocations"]
    assert not invocation["executionSuccessful"]
    assert (
        invocation["toolExecutionNotifications"][0]["message"]["text"] == "loading `train.py:make` failed\nhelp: run it"
    )
