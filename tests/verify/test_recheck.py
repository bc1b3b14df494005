"""Certificates of one training agree within the noise of both, and say what was different where they do not."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import porting
from porting.diagnostics import PortingError
from porting.verify.certificate import Certificate, Verdict
from porting.verify.recheck import compare_certificates


def make_parts():
    """Make a model with its optimizer, and a batch; each time the same."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.rand(8, 4), torch.randint(3, (8,)))


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    """Certify a port, and read the certificate as from a file."""
    model, optimizer, batch = make_parts()
    made = porting.verify(model, nn.CrossEntropyLoss(), batch, optimizer=optimizer, steps=4, device="sim")
    return Certificate.from_dict(made.to_dict())


def change_record(certificate: Certificate, change) -> Certificate:
    record = copy.deepcopy(dict(certificate.record))
    change(record)
    return replace(certificate, record=record)


def test_a_certificate_agrees_with_itself(certificate):
    comparison = compare_certificates(certificate, certificate)

    assert comparison.holds
    assert {kind.kind for kind in comparison.kinds} >= {"loss", "gradient", "update", "parameter", "buffer"}
    assert "the two certificates agree: PASS there, PASS here" in str(comparison)


def test_a_run_that_differs_by_rounding_agrees(certificate):
    def change(record):
        record["losses"]["3"] = [loss * (1 + 1e-7) for loss in record["losses"]["3"]]

    assert compare_certificates(certificate, change_record(certificate, change)).holds


def test_a_loss_that_rounding_does_not_explain_is_named_with_its_step(certificate):
    def change(record):
        record["losses"]["3"] = [loss * 1.01 for loss in record["losses"]["3"]]

    comparison = compare_certificates(certificate, change_record(certificate, change))

    failed = [kind for kind in comparison.kinds if kind.verdict is Verdict.FAIL]
    assert [(kind.kind, kind.first.step) for kind in failed] == [("loss curve", 3)]
    assert not comparison.holds
    assert comparison.to_dict()["holds"] is False


def test_a_gradient_that_only_one_has_is_a_difference(certificate):
    def change(record):
        first = next(item for item in record["sketches"] if item["kind"] == "gradient")
        del first["tensors"]["0.bias"]

    comparison = compare_certificates(certificate, change_record(certificate, change))

    assert [kind.kind for kind in comparison.kinds if kind.verdict is Verdict.FAIL] == ["gradient"]


def test_other_verdicts_do_not_agree(certificate):
    assert not compare_certificates(certificate, replace(certificate, verdict=Verdict.CHAOTIC)).holds


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hashes": {"weights": "00"}}, "they had other weights and other data"),
        ({"settings": {"steps": 9}}, "they were asked for 4 and 9 steps"),
        ({"record": {}}, "the second keeps no record"),
    ],
)
def test_trainings_that_are_not_one_are_not_compared(certificate, changes, told):
    comparison = compare_certificates(certificate, replace(certificate, **changes))

    assert told in str(comparison)
    assert not comparison.holds
    assert comparison.kinds == ()


def test_what_differs_around_two_runs_is_told(certificate):
    other = replace(
        certificate,
        surroundings={**certificate.surroundings, "threads": 64},
        hashes={**certificate.hashes, "source": "00" * 32},
    )

    comparison = compare_certificates(certificate, other)

    assert comparison.holds
    assert "the source is not the same" in str(comparison)
    assert "threads: " in str(comparison)


@pytest.mark.parametrize(
    "record",
    [
        {"losses": 1},
        {"losses": {}, "rates": {}, "sketches": [{"kind": "output"}], "ended_by": "", "bands": []},
        {
            "losses": {},
            "rates": {},
            "sketches": [{"kind": "output", "step": 1, "tensors": {"a": {"shape": [1], "values": "%"}}}],
            "bands": [],
        },
        {"losses": {"x": []}, "rates": {}, "sketches": [], "ended_by": "", "bands": [[1]]},
    ],
)
def test_a_record_that_is_none_is_refused(certificate, record):
    with pytest.raises(PortingError) as caught:
        compare_certificates(certificate, replace(certificate, record=record))

    assert caught.value.code == "V004"
