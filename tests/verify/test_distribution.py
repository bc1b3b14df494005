"""Random numbers that are not the same on both sides are compared in distribution."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting.verify import Verdict


def make(rate):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 16), nn.Dropout(rate), nn.ReLU(), nn.Linear(16, 3))


def prove(rate, monkeypatch):
    monkeypatch.setattr("porting.verify.verify.can_match_streams", lambda _model: False)
    model = make(0.3)
    generator = torch.Generator().manual_seed(1)
    batch = torch.randn(24, 5, generator=generator), torch.randint(3, (24,), generator=generator)

    def port(copied):
        copied[1].p = rate
        # its own stream
        options = porting.PortOptions(keep_gradients=True, seed=77)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.05)
        return porting.to_ipu(copied, F.cross_entropy, optimizer=optimizer, options=options, device="sim")

    return porting.verify(
        model, F.cross_entropy, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.05), ported=port, steps=3
    )


@pytest.mark.slow
def test_the_same_rate_passes_and_the_power_is_stated(monkeypatch):
    certificate = prove(0.3, monkeypatch)

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert any("256 draws" in note and "probability of 90 %" in note for note in certificate.notes)
    kinds = {kind.kind: kind for kind in certificate.kinds}
    assert kinds["update"].verdict is Verdict.NOT_COMPARED
    assert kinds["gradient"].num_compared == 8
    assert kinds["learning rate"].num_compared == 3


@pytest.mark.parametrize("rate", [0.0, 0.6])
def test_another_rate_fails(rate, monkeypatch):
    certificate = prove(rate, monkeypatch)

    assert certificate.verdict is Verdict.FAIL
    assert certificate.first.kind in ("loss", "gradient")
