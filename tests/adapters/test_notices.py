"""Findings as warnings."""

from __future__ import annotations

import pickle
import warnings

import pytest

from porting.adapters.notices import PortingWarning, notify
from porting.diagnostics import Finding, Place, render

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
