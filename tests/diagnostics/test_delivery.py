"""Findings as warnings, as lines of a log, as a command's output, and as the last words of a program."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import warnings

import pytest

from porting.diagnostics import (
    Finding,
    Place,
    PortingError,
    PortingWarning,
    log_finding,
    log_in_one_line,
    notify,
    print_finding,
    render,
    show_findings_alone,
    warnings_as_findings,
)

FINDING = Finding("B006", "3 samples are dropped")


def test_a_notice_carries_its_finding_and_shows_it_rendered():
    with pytest.warns(PortingWarning) as shown:
        notify(FINDING)

    assert shown[0].message.finding is FINDING
    assert str(shown[0].message) == render(FINDING)


def test_a_notice_points_at_its_place():
    finding = Finding("B006", place=Place("train.py", 7))

    with pytest.warns(PortingWarning) as shown:
        notify(finding)

    assert (shown[0].filename, shown[0].lineno) == ("train.py", 7)


def test_a_notice_without_place_points_at_the_caller():
    def adapter():
        notify(FINDING)

    with pytest.warns(PortingWarning) as shown:
        adapter()

    assert shown[0].filename == __file__


def test_a_notice_without_a_user_on_the_stack_points_at_no_launcher(monkeypatch):
    monkeypatch.setattr("porting.diagnostics.delivery.caller_place", lambda: None)

    with pytest.warns(PortingWarning) as shown:
        notify(FINDING)

    assert (shown[0].filename, shown[0].lineno) == ("porting", 0)


@pytest.fixture(autouse=True)
def _python_writes_warnings(monkeypatch):
    """Let warnings be written as Python does, whatever ports of other tests have set."""

    def write(message, category, filename, lineno, line=None):
        return f"{filename}:{lineno}: {category.__name__}: {message}\n  {line}\n"

    monkeypatch.setattr(warnings, "formatwarning", write)


def write_as_python_does(warning: Warning) -> str:
    """Write a warning as Python shows it where nobody records it."""
    return warnings.formatwarning(warning, type(warning), "train.py", 7, "the line")


def test_a_command_prints_notices_as_findings_alone():
    with warnings_as_findings():
        shown = write_as_python_does(PortingWarning(FINDING))

    assert shown == render(FINDING) + "\n"
    assert write_as_python_does(PortingWarning(FINDING)).startswith("train.py:7: PortingWarning: ")


def test_a_command_prints_notices_in_its_format():
    with warnings_as_findings("json"):
        assert write_as_python_does(PortingWarning(FINDING)) == render(FINDING, "json") + "\n"


def test_a_command_leaves_other_warnings_as_they_are():
    with warnings_as_findings():
        assert (
            write_as_python_does(UserWarning("of the user's")) == "train.py:7: UserWarning: of the user's\n  the line\n"
        )


def test_notices_can_be_made_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PortingWarning)

        with pytest.raises(PortingWarning, match="3 samples are dropped"):
            notify(FINDING)


@pytest.mark.parametrize("place", [None, Place("train.py", 7)])
def test_pythons_default_filter_shows_a_notice_once(place):
    finding = Finding("B006", "shown once", place=place)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            notify(finding)

    assert len(shown) == 1


def test_a_notice_survives_pickling():
    assert pickle.loads(pickle.dumps(PortingWarning(FINDING))).finding == FINDING


def test_a_log_gets_a_finding_rendered(caplog):
    log_finding(FINDING)

    assert [record.getMessage() for record in caplog.records] == [render(FINDING)]


def test_a_log_hears_of_a_code_once_where_that_is_asked_for(caplog, monkeypatch):
    monkeypatch.setattr("porting.diagnostics.delivery._LOGGED", set())

    for finding in (FINDING, FINDING, Finding("B005")):
        log_finding(finding, once=True)

    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (Finding("B006", "lost", help="keep them"), "B006: lost. Keep them"),
        (
            Finding("B006", "lost", notes=["3 of 4"], help=["keep them", "or not"]),
            "B006: lost (3 of 4). Keep them. Or not",
        ),
        (Finding("B006", "lost", place=Place("train.py", 7), notes="3 of 4"), "B006: lost (train.py:7)"),
    ],
)
def test_a_backends_log_gets_one_line(caplog, finding, line):
    log_in_one_line(finding, logging.getLogger("backend"))

    assert caplog.messages == [line]


def test_a_command_writes_findings_to_standard_error(capsys):
    print_finding(FINDING, "json")

    assert capsys.readouterr() == ("", render(FINDING, "json") + "\n")


PROGRAM = """
import torch
from porting import to_ipu
ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), device="sim")
ported(torch.ones(2, 4)) if {finding} else undefined_name
"""


def run(finding, **env):
    import os

    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(finding=finding)],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_finding_that_nobody_catches_is_shown_without_a_traceback():
    ended = run(finding=True)

    assert ended.returncode == 1
    assert "error[D006]" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_traceback_comes_back_by_a_variable():
    assert "Traceback" in run(finding=True, PORTING_TRACEBACK="1").stderr


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_all_other_errors_have_theirs():
    ended = run(finding=False)

    assert "Traceback" in ended.stderr
    assert "NameError" in ended.stderr


def test_the_hook_that_was_there_gets_everything_but_findings(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    show_findings_alone()
    show_findings_alone()
    other = ValueError()

    sys.excepthook(ValueError, other, None)
    sys.excepthook(PortingError, PortingError.of("L002"), None)

    assert seen == [other]
    assert capsys.readouterr().err.count("error[L002]") == 1
