"""A certificate says in a table what was compared, and stops a program unless its verdict is PASS."""

from __future__ import annotations

import math

import pytest

from porting.diagnostics import PortingError
from porting.verify.certificate import Certificate, KindVerdict, Measured, Sensitivity, Verdict
from tests.verify.certificates import make_certificate, make_failed


def test_a_certificate_that_holds_is_returned_by_check():
    certificate = make_certificate()

    assert certificate.check() is certificate


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.PASS])
def test_any_other_verdict_is_refused_with_its_name(verdict):
    with pytest.raises(PortingError, match=verdict.value) as caught:
        make_certificate(verdict=verdict).check()

    assert caught.value.code == "V003"
    assert caught.value.finding.help


def test_the_error_tells_where_it_begins_and_the_likely_cause():
    with pytest.raises(PortingError) as caught:
        make_failed().check()

    text = str(caught.value)
    assert "gradient `1.bias` in step 2: only plain PyTorch has it" in text
    assert "line train.py:3:8; cause the bias is detached" in text


def test_what_would_have_been_caught_and_the_verdict_come_first():
    lines = str(make_certificate()).splitlines()

    assert lines[:3] == [
        "gradients that are 0.03 % too large would have been caught; 0.01 % too large they might not",
        "PASS: everything that was compared lies inside the noise band",
        "train.py:make: 10 optimizer steps in 1.5 s; against one large batch of 8 samples",
    ]


def test_the_table_has_a_row_for_each_kind():
    lines = str(make_certificate()).splitlines()

    assert [line.split() for line in lines[4:8]] == [
        ["compared", "of", "band", "in", "step", "verdict", "worst"],
        ["ok", "output", "1", "0.33", "1", "inside", "output"],
        ["ok", "gradient", "40", "0.5", "3", "inside", "1.weight"],
        ["-", "buffer", "0", "not", "compared", "the", "model", "has", "none"],
    ]


def test_a_fault_stands_with_its_place_below_the_table():
    text = str(make_failed())

    assert "FAILED  update          40    3e+04        2  outside x 3e+04  1.bias" in text
    assert "it begins with the gradient `1.bias` in step 2: only plain PyTorch has it" in text
    assert "  line      train.py:3:8" in text
    assert "float16: half precision does not explain this" in text
    assert text.endswith("note: dropout is compared in distribution")


def test_a_run_that_was_cut_off_says_how_far_it_came():
    certificate = make_certificate(verdict=Verdict.INCOMPLETE, num_steps=7, num_steps_asked=50)

    assert "7 optimizer steps of 50" in str(certificate)


def test_a_difference_that_is_no_number_is_outside():
    measured = Measured("loss", "loss", 1, math.nan, 1.0, 0.5)
    certificate = make_certificate(kinds=(KindVerdict("loss", Verdict.FAIL, 1, measured, measured),))

    assert "outside x > 1,000,000" in str(certificate)


def test_without_a_name_and_kinds_there_is_no_table():
    certificate = make_certificate(kinds=(), program="", comparison="", notes=())

    assert str(certificate).splitlines()[2:] == ["10 optimizer steps in 1.5 s"]


@pytest.mark.parametrize(
    ("caught", "missed", "said"),
    [
        (0.03, 0.01, "updates that are 3 % too large would have been caught; 1 % too large they might not"),
        (1e-6, None, "updates that are 0.0001 % too large would have been caught"),
        (None, 1.0, "no fault that was planted in the updates would have been caught"),
    ],
)
def test_the_smallest_fault_is_said_in_a_sentence(caught, missed, said):
    assert str(make_certificate(sensitivity=Sensitivity("update", caught, missed))).splitlines()[0] == said


def test_a_certificate_that_tells_no_smallest_fault_begins_with_the_verdict():
    assert str(make_certificate(sensitivity=None)).startswith("PASS: ")


@pytest.mark.parametrize("sensitivity", [None, Sensitivity("gradient", 0.03, 0.01), Sensitivity("gradient", None, 1.0)])
def test_the_smallest_fault_is_read_as_it_was_written(sensitivity):
    certificate = make_certificate(sensitivity=sensitivity)

    plain = certificate.to_dict()

    assert next(iter(plain)) == "sensitivity"
    assert Certificate.from_dict(plain).sensitivity == sensitivity
