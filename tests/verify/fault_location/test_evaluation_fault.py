"""What an evaluation does otherwise is found: it goes on training, has other settings, or what was saved is another."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.verify.certificate import Measured
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.location import locate_fault, say_checkpoint
from tests.verify.fault_location.ports import Around, Net, build_pair, change_attribute, make_batches


class Counting(Net):
    """A network that counts its evaluations too."""

    def forward(self, x):
        self.mean.add_(1.0)
        return super().forward(x)


def evaluate(change=None, spoil=lambda ported: None, kind=Net, wrap=lambda ported: ported, **options):
    """Train one step, give both sides the same weights, and locate what their evaluation has otherwise."""
    plain, ported = build_pair(change, kind=kind, **options)
    spoil(ported)
    ported(*make_batches()[0])
    plain.model.load_state_dict(ported.state_dict())
    first = Measured("evaluation", "output 0", 1, 1.0, 1.0, 0.0)
    return locate_fault(plain, wrap(ported), [(make_batches()[0], {})], first=first)


class SavingOthers(Around):
    """A port whose checkpoints have running statistics of their own."""

    def save(self, path, **settings):
        mean = self.inner.model.norm.running_mean
        with torch.no_grad():
            mean.add_(1.0)
            self.inner.save(path, **settings)
            mean.sub_(1.0)


class Forgetting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1), persistent=False)


def test_an_evaluation_that_goes_on_training_is_found():
    found = evaluate(spoil=lambda ported: setattr(ported, "eval", lambda: ported))

    assert (found.phase, found.module) == ("evaluation", "norm")
    assert "writes `norm.running_mean`" in found.cause
    assert "stays in train mode" in found.cause


def test_an_evaluation_with_another_setting_is_found():
    found = evaluate(change_attribute("norm", "eps", 0.1))

    assert (found.phase, found.module) == ("evaluation", "norm")
    assert "`eps` is 1e-05" in found.cause


def test_what_forward_itself_writes_in_an_evaluation_is_no_fault():
    found = evaluate(kind=Counting)

    assert "writes" not in found.cause


def test_running_statistics_that_a_checkpoint_saves_wrongly_are_named():
    found = evaluate(wrap=SavingOthers)

    assert found.phase == "evaluation"
    assert found.cause == "running statistics are saved or loaded wrongly: `norm.running_mean`"


def test_an_evaluation_that_shows_nothing_is_told_by_what_differed():
    found = evaluate()

    assert found.cause == "the evaluation differs in output 0"


def test_buffers_that_no_checkpoint_has_are_named():
    found = evaluate(kind=Forgetting)

    assert found.cause == "no checkpoint has `center`: `register_buffer(..., persistent=False)`"


def test_an_evaluation_is_found_with_parts_that_are_accumulated_in_training():
    found = evaluate(change_attribute("norm", "eps", 0.1), accumulation=2)

    assert (found.phase, found.module) == ("evaluation", "norm")


def test_the_modes_are_as_before_afterwards():
    plain, ported = build_pair()
    ported(*make_batches()[0])
    modes = [module.training for model in (plain.model, ported.model) for module in model.modules()]
    before = [value.clone() for value in plain.model.state_dict().values()]

    locate_fault(plain, ported, [(make_batches()[0], {})], first=Measured("evaluation", "output 0", 1, 1.0, 1.0, 0.0))

    assert modes == [module.training for model in (plain.model, ported.model) for module in model.modules()]
    assert all(map(torch.equal, before, plain.model.state_dict().values()))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("norm.running_var", "running statistics are saved or loaded wrongly: `norm.running_var`"),
        ("second.weight", "`second.weight` is another after it was saved and loaded"),
    ],
)
def test_what_was_saved_otherwise_is_said(name, words):
    plain, ported = build_pair()
    evidence = Evidence(plain, ported, Measured("reloading", name, 1, 1.0, 1.0, 0.0))

    assert say_checkpoint(evidence, [name]) == words


@pytest.mark.parametrize("kind", ["reloading", "resuming"])
def test_the_kind_and_the_note_are_said_of_a_checkpoint(kind):
    plain, ported = build_pair()
    first = Measured(kind, "norm.running_mean", 3, 1.0, 1.0, 0.0, "it is not what the port had")

    found = locate_fault(plain, ported, [], first=first)

    assert (found.step, found.module, found.operator) == (3, "norm", "norm.running_mean")
    assert found.cause.endswith(f"`norm.running_mean` ({kind}): it is not what the port had")


def test_a_model_without_modules_is_named_by_its_class():
    plain, ported = build_pair(kind=lambda: nn.Sequential(nn.Linear(6, 4)))
    first = Measured("evaluation", "output 0", 1, 1.0, 1.0, 0.0)
    ported(*make_batches()[0])

    assert locate_fault(plain, ported, [(make_batches()[0], {})], first=first).phase == "evaluation"
