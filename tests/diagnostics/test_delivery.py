"""Findings as warnings, as lines of a log, and as a command's output."""

from __future__ import annotations

import logging
import pickle
import warnings

import pytest

from porting.diagnostics import (
    Finding,
    Place,
    PortingWarning,
    log_finding,
    log_in_one_line,
    notify,
    print_finding,
    render,
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
