"""After a training nothing is skipped in silence: evaluation, what was saved, and how the training goes on."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import PortOptions
from porting.adapters import checkpoints
from porting.verify import Verdict

KEPT = PortOptions(keep_gradients=True)


class Net(nn.Module):
    """A layer, and a buffer that its training writes."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return self.answer(y - self.mean)

    def answer(self, y):
        return y


class Shorter(Net):
    def answer(self, y):
        return y if self.training else y[:-1]


class Deciding(Net):
    def answer(self, y):
        return y if self.training else y.argmax(1, keepdim=True).expand(-1, 4)


class Twice(Net):
    def answer(self, y):
        return y if self.training else (y, y)


def loss(output, label):
    return (
        F.cross_entropy(output.float(), label[: len(output)]) if isinstance(output, torch.Tensor) else output[0].sum()
    )


def prove(change=lambda model: None, *, model=None):
    torch.manual_seed(0)
    model = Net() if model is None else model

    def port(own):
        change(own)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
        return porting.to_ipu(own, loss, optimizer=optimizer, options=KEPT, device="sim")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = torch.randn(8, 6), torch.randint(4, (8,))
    return porting.verify(model, loss, batch, optimizer=optimizer, steps=3, ported=port)


def become(kind):
    return lambda model: setattr(model, "__class__", kind)


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (Shorter, "shape [7, 4] in the port, [8, 4] in plain PyTorch"),
        (Deciding, "whole numbers in the port, floating point in plain PyTorch"),
        (Twice, "only the port returns it"),
    ],
)
def test_an_evaluation_of_another_form_is_a_difference(kind, note):
    certificate = prove(become(kind))

    assert certificate.verdict is Verdict.FAIL
    assert (certificate.first.kind, certificate.first.note) == ("evaluation", note)


class Failing(Net):
    def answer(self, y):
        return y if self.training else y.argmax(1)


def test_an_evaluation_that_fails_in_the_port_alone_is_a_difference():
    certificate = prove(become(Failing))

    assert certificate.verdict is Verdict.FAIL
    assert certificate.first.note.startswith("it fails in the port alone: ")


def test_a_checkpoint_that_lacks_a_buffer_fails():
    certificate = prove(lambda model: model.register_buffer("mean", model.mean.clone(), persistent=False))

    assert certificate.verdict is Verdict.FAIL
    assert certificate.first.kind == "reloading"
    assert 'Missing key(s) in state_dict: "mean"' in certificate.first.note


def test_settings_that_are_saved_wrongly_are_a_difference(monkeypatch):
    own = checkpoints._make_plain

    def forget_momentum(value, path):
        made = own(value, path)
        return {**made, "momentum": 0.0} if isinstance(made, dict) and "momentum" in made else made

    monkeypatch.setattr(checkpoints, "_make_plain", forget_momentum)

    certificate = prove()

    assert certificate.verdict is Verdict.FAIL
    assert "`momentum` was saved as 0.0 and is 0.9" in certificate.first.note


class Recording(Net):
    """Writes to its buffer in an evaluation, too."""

    def forward(self, x):
        y = self.fc(x)
        self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return y - self.mean


def test_what_forward_writes_to_in_an_evaluation_is_compared_and_no_fault():
    certificate = prove(model=Recording())

    assert certificate.verdict is Verdict.PASS, str(certificate)


def test_another_thing_that_is_written_in_an_evaluation_is_a_fault():
    class Forgetful(Recording):
        def forward(self, x):
            y = self.fc(x)
            self.mean.mul_(0.9 if self.training else 0.8).add_(y.detach().mean(0), alpha=0.1)
            return y - self.mean

    certificate = prove(become(Forgetful), model=Recording())

    assert certificate.verdict is Verdict.FAIL
    assert certificate.first.kind == "evaluation"
