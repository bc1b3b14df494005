"""Findings of a capture are collected and told once; errors are raised unless the device passes over them."""

from __future__ import annotations

import pytest

from porting.capture.recording.reports import Reports
from porting.diagnostics import CaptureError

HOOK, TENSOR = (CaptureError.of(code, message=code) for code in ("C007", "C003"))


def reports_for(host_features, *, allowed=()):
    told = []
    return Reports(host_features=host_features, allowed=allowed, listener=told.append), told


def test_a_finding_is_kept_and_told_at_once():
    reports, told = reports_for("refused")

    reports.add(HOOK.finding)

    assert reports.findings == told == [HOOK.finding]


def test_the_same_message_is_told_once():
    reports, told = reports_for("ignored")

    for _ in range(2):
        reports.refuse(HOOK)

    assert told == [HOOK.finding]


@pytest.mark.parametrize(("host_features", "error"), [("refused", HOOK), ("refused", TENSOR), ("computed", HOOK)])
def test_what_the_capture_refuses_is_raised(host_features, error):
    reports, told = reports_for(host_features)

    with pytest.raises(CaptureError):
        reports.refuse(error)

    assert told == []


def test_what_is_allowed_is_only_reported():
    reports, told = reports_for("computed", allowed=[HOOK.finding.slug])

    reports.refuse(HOOK)

    assert told == [HOOK.finding]


def test_a_backward_is_kept_where_it_is_computed_and_not_given_up():
    kept = [reports_for(kind)[0].keeps_backward_of("a") for kind in ("computed", "ignored", "refused")]

    assert kept == [True, False, False]
    assert not reports_for("computed", allowed=["a"])[0].keeps_backward_of("a")
