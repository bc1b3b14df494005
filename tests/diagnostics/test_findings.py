"""A finding fills in what its code knows and turns into plain values."""

from __future__ import annotations

import dataclasses
import json

import pytest

from porting.diagnostics import CODES, Finding, Place, Severity


def test_message_and_severity_default_to_those_of_the_code():
    finding = Finding("B006")

    assert (finding.message, finding.severity) == (CODES["B006"].title, Severity.WARNING)


def test_a_severity_that_is_given_wins():
    assert Finding("B006", severity=Severity.ERROR).severity is Severity.ERROR


def test_a_severity_may_be_given_by_its_name():
    assert Finding("B006", severity="note").severity is Severity.NOTE


def test_slug_and_title_come_from_the_table():
    finding = Finding("C001", "`.item()` reads a value")

    assert (finding.slug, finding.title) == ("host-read", CODES["C001"].title)


def test_a_single_note_or_help_is_one_line_not_its_letters():
    finding = Finding("L001", notes="a fact", help="an action")

    assert (finding.notes, finding.help) == (("a fact",), ("an action",))


def test_notes_in_a_list_become_a_tuple_so_that_findings_can_be_in_a_set():
    assert len({Finding("L001", notes=["a", "b"]), Finding("L001", notes=("a", "b"))}) == 1


def test_a_finding_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Finding("L001").message = "another"


def test_an_unknown_code_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown code 'L999'"):
        Finding("L999")


def test_to_dict_survives_json():
    finding = Finding("L001", place=Place("train.py", 3, 8, 3, 30), label="here", notes=["n"], help=["h"])

    assert json.loads(json.dumps(finding.to_dict())) == {
        "code": "L001",
        "slug": "loss-outside-forward",
        "severity": "error",
        "message": "the loss is computed outside `forward`",
        "place": {"file": "train.py", "line": 3, "column": 8, "end_line": 3, "end_column": 30},
        "label": "here",
        "notes": ["n"],
        "help": ["h"],
    }


def test_to_dict_of_a_finding_without_a_place_says_none():
    assert Finding("D001").to_dict()["place"] is None
