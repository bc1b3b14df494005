"""The course of a proof: what it says of its notes, its missing parts, its hashes, and where it is stopped."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import LossTerm, PlainTraining, PortOptions
from porting.verify import Verdict

X, Y = torch.linspace(-1, 1, 48).view(8, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


def build(loss=F.cross_entropy, model=None):
    torch.manual_seed(0)
    model = model or nn.Linear(6, 3)
    return PlainTraining(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


def prove(training=None, **more):
    return porting.verify(training or build(), batches=(X, Y), steps=2, device="sim", **more)


def test_a_reading_of_the_loss_that_is_the_ports_is_incomplete():
    certificate = prove(build({"one": LossTerm(F.cross_entropy), "two": LossTerm(F.cross_entropy, weight=0.5)}))

    assert certificate.verdict is Verdict.INCOMPLETE
    assert "compute_loss=" in certificate.reason


def test_random_numbers_are_told():
    certificate = prove(build(model=nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))))

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert any("both sides draw from the same stream" in note for note in certificate.notes)


def test_buffers_of_other_replicas_are_told():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    certificate = prove(build(model=model), options=PortOptions(micro_batch=4, replicas=2, broadcast_buffers=False))

    assert any("first replica" in note for note in certificate.notes)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (PortOptions(keep_gradients=False), "gradient"),
        (PortOptions(micro_batch=4, accumulation=2), "output"),
    ],
)
def test_what_a_port_of_the_users_does_not_show_has_a_reason(options, kind):
    def port(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return porting.to_ipu(model, F.cross_entropy, optimizer=optimizer, options=options, device="sim")

    certificate = prove(ported=port)

    (found,) = (one for one in certificate.kinds if one.kind == kind)
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.note


def test_hashes_say_what_was_proved():
    one, same, other = prove(), prove(), prove(build(model=nn.Linear(6, 3, bias=False)))

    assert one.hashes == same.hashes
    assert set(one.hashes) == {"source", "weights", "data", "options"}
    assert one.hashes["weights"] != other.hashes["weights"]


def test_a_port_in_half_precision_is_judged_by_its_own_rule():
    certificate = prove(options=PortOptions(precision="mixed"))

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert certificate.precision.precision == "mixed"


def test_a_proof_of_part_of_a_call_is_one_of_whole_calls():
    certificate = porting.verify(
        build(),
        batches=(X, Y),
        steps=3,
        options=PortOptions(micro_batch=4, device_iterations=2),
        device="sim",
    )

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert certificate.num_steps == 4
