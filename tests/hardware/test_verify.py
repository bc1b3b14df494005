"""A port over PopTorch's front end gets its certificate, as one on the simulator does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting import PortOptions, to_ipu
from porting.verify.certificate import Verdict

LOSS = nn.CrossEntropyLoss()
KEPT = PortOptions(keep_gradients=True, output_mode="all")


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def make_batches():
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(8, 4, generator=generator), torch.arange(8) % 3) for _ in range(2)]


def make_sgd(model, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


@pytest.mark.parametrize(
    "options",
    [KEPT, PortOptions(keep_gradients=True, output_mode="all", micro_batch=2, accumulation=4)],
    ids=["one batch", "accumulation"],
)
def test_a_sound_port_passes(options):
    model = make_net()

    certificate = porting.verify(
        model, LOSS, make_batches(), optimizer=make_sgd(model), options=options, steps=6, device="ipu"
    )

    assert certificate.verdict is Verdict.PASS, str(certificate)
    compared = {kind.kind for kind in certificate.kinds if kind.num_compared}
    assert {"loss", "gradient", "update", "parameter"} <= compared


def test_another_momentum_is_found():
    model = make_net()

    def make_port(own):
        return to_ipu(own, LOSS, optimizer=make_sgd(own, momentum=0.8), options=KEPT, device="ipu")

    certificate = porting.verify(model, LOSS, make_batches(), optimizer=make_sgd(model), ported=make_port, steps=6)

    assert certificate.verdict is Verdict.FAIL, str(certificate)
    assert (certificate.first.kind, certificate.first.name) == ("setting", "momentum")
