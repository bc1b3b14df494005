"""A certificate that contradicts itself is refused, whichever part of it was changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import porting
from porting.diagnostics import PortingError
from porting.support.plain_data import make_plain
from porting.verify.certificate import Certificate, Curves, Sensitivity, Verdict
from tests.verify.certificates import make_certificate, make_failed


@pytest.fixture(scope="module")
def proven():
    """Prove a port whose losses are several in a step."""
    model = nn.Linear(3, 2)
    options = porting.PortOptions(accumulation=2)
    batch = torch.randn(8, 3), torch.randn(8, 2)
    return porting.verify(model, nn.MSELoss(), batch, steps=4, options=options, device="sim")


def refuse(certificate: Certificate) -> str:
    with pytest.raises(PortingError) as caught:
        Certificate.from_dict(make_plain(certificate))
    assert caught.value.code == "V004"
    return caught.value.finding.message


@pytest.mark.parametrize("make", [make_certificate, make_failed])
def test_one_that_agrees_with_itself_is_read(make, proven):
    assert Certificate.from_dict(make_plain(proven)) == proven
    assert Certificate.from_dict(make_plain(make())).verdict is make().verdict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": Verdict.PASS}, "the verdict is PASS, and `gradient` is FAIL"),
        ({"verdict": Verdict.INCOMPLETE}, "the verdict is INCOMPLETE, and `gradient` is FAIL"),
        ({"verdict": Verdict.CHAOTIC, "kinds": (), "precision": None}, "the verdict is CHAOTIC, and no step was"),
    ],
    ids=["pass", "incomplete", "chaotic"],
)
def test_a_verdict_that_the_kinds_do_not_support_is_refused(changes, words):
    assert words in refuse(make_failed(**changes))


def test_a_fail_without_a_fault_is_refused():
    assert "nothing in it is FAIL" in refuse(make_certificate(verdict=Verdict.FAIL))


def test_a_pass_that_did_not_make_its_steps_is_refused():
    assert "after 10 of 20 steps" in refuse(make_certificate(num_steps_asked=20))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_steps": 1000}, "1000 steps were compared of 10"),
        ({"num_steps": 20, "num_steps_asked": 20}, "and the losses of 10 were kept"),
        ({"reason": "everything lies inside its noise band, 5000 steps long"}, "the reason tells of others"),
        ({"curves": Curves()}, "the curve of plain PyTorch has 0 of 10 steps"),
        ({"kinds": make_certificate().kinds * 2}, "a kind stands twice"),
        ({"kinds": make_certificate().kinds[-1:], "sensitivity": None}, "nothing was compared"),
        ({"sensitivity": Sensitivity("gradient", 3e-9, 1e-4)}, "its first line tells"),
        ({"sensitivity": Sensitivity("update", 3e-4, 1e-4)}, "its first line tells"),
    ],
    ids=["more steps", "steps without losses", "reason", "no curve", "twice", "nothing", "too small", "not compared"],
)
def test_counts_that_the_rest_does_not_support_are_refused(changes, words):
    assert words in refuse(make_certificate(**changes))


def test_a_kind_that_its_figures_do_not_support_is_refused():
    certificate = make_failed()
    kinds = tuple(replace(kind, verdict=Verdict.PASS) for kind in certificate.kinds)

    assert "`gradient` is PASS, and its figures say FAIL" in refuse(replace(certificate, kinds=kinds))


@pytest.mark.parametrize(("side", "name"), [("plain", "plain PyTorch"), ("ported", "the port")])
def test_a_curve_that_is_not_of_the_losses_is_refused(proven, side, name):
    curves = replace(proven.curves, **{side: tuple(0.9 * loss for loss in getattr(proven.curves, side))})

    assert f"the curve of {name} is" in refuse(replace(proven, curves=curves))


def test_losses_that_the_kinds_are_not_of_are_refused(proven):
    record = copy.deepcopy(dict(proven.record))
    record["losses"] = {step: [1.1 * loss for loss in losses] for step, losses in record["losses"].items()}
    curves = Curves(proven.curves.plain, tuple(1.1 * loss for loss in proven.curves.ported))

    assert "in step" in refuse(replace(proven, record=record, curves=curves))


def test_a_record_of_another_form_is_refused(proven):
    assert "its record is damaged" in refuse(replace(proven, record={"losses": [1.0]}))
