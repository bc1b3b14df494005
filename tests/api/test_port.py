from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from porting import to_ipu
from porting.adapters import PortingWarning


def test_a_batchnorm_in_eval_mode_stays_as_it_is(make_model, batches, train_plainly, train_ported, same):
    def frozen():
        model = make_model()
        model[1].eval()
        return model

    plain, model = frozen(), frozen()
    expected = train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)

    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    same(train_ported(ported, batches), expected)
    assert not ported.state_dict()["1.running_mean"].any()
    assert not model[1].training


def test_train_and_eval_switch_the_modules_before_compiling(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    ported.eval()
    assert not any(module.training for module in ported.model.modules())

    ported.train()
    assert all(module.training for module in ported.model.modules())


@pytest.mark.parametrize("call", ["train", "eval"])
def test_train_and_eval_return_the_ported_model(call, make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])

    assert getattr(ported, call)() is ported
    assert ported.train(mode=False) is ported


def test_evaluating_between_steps_is_no_change_of_mode(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ported.eval()
        ported(*batches[1])
        ported.train()
        ported(*batches[2])

    assert ported.report().num_training_calls == 2


def test_a_part_switched_after_compiling_is_reported_by_train(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])
    ported.model[1].eval()

    with pytest.warns(PortingWarning) as caught:
        ported.train()

    assert caught[0].message.finding.code == "D005"
    assert "ported.destroy()" in caught[0].message.finding.help[0]


def test_the_model_switched_after_compiling_is_reported_once_by_the_next_call(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])
    ported.model.eval()

    with pytest.warns(PortingWarning, match="D005") as caught:
        [ported(*batch) for batch in batches[1:4]]

    assert len(caught) == 1


def test_after_destroy_the_new_modes_are_compiled_in(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])
    before = ported.state_dict()["1.running_mean"]
    ported.destroy()

    ported.model[1].eval()
    ported(*batches[1])

    assert torch.equal(ported.state_dict()["1.running_mean"], before)


class Whole(nn.Module):
    """Has a `train` of its own, which must not be called behind the user's back."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.num_switches = nn.LazyLinear(3), 0

    def train(self, mode=True):
        self.num_switches += 1
        return super().train(mode)

    def forward(self, x):
        return self.body(x) if self.training else self.body(x) * 100


def test_compiling_switches_no_mode_that_the_user_can_see(batches):
    model = Whole()
    ported = to_ipu(model, nn.CrossEntropyLoss())

    ported.inference()(batches[0][0])
    output, _ = ported(*batches[0])

    assert model.training
    assert model.num_switches == 0
    assert output.abs().max() < 50
