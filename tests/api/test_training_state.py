"""A training that is saved by hand goes on by hand, and what does not fit changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR, ReduceLROnPlateau

from porting import PortOptions, save_checkpoint, to_ipu
from porting.adapters import PortingWarning, load_checkpoint
from porting.diagnostics import CheckpointError
from tests.api.conftest import make_batches, train_ported

ADAM = [torch.optim.Adam, {"lr": 0.01}]
OPTIMIZERS = {
    "SGD": [torch.optim.SGD, {"lr": 0.1}],
    "momentum": [torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}],
    "Adam": ADAM,
    "AdamW": [torch.optim.AdamW, {"lr": 0.01}],
    "RMSprop": [torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}],
}


def make(kind=ADAM, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3))
    optimizer = kind[0](model.parameters(), **kind[1])
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options)), optimizer


def losses_behind(path, ported, **settings):
    """Save, and return the losses that come then."""
    ported.save(path, **settings)
    return train_ported(ported, make_batches()[4:12])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_losses_behind_a_checkpoint_are_the_same(name, tmp_path):
    ported, _optimizer = make(OPTIMIZERS[name])
    train_ported(ported, make_batches()[:4])
    expected = losses_behind(tmp_path / "a.pt", ported)
    other, _optimizer = make(OPTIMIZERS[name])

    checkpoint = other.load(tmp_path / "a.pt")

    assert checkpoint.step == 4
    assert train_ported(other, make_batches()[4:12]) == expected
    assert train_ported(ported, []) == []


def test_a_port_that_has_trained_on_goes_back(tmp_path):
    ported, _optimizer = make()
    train_ported(ported, make_batches()[:4])
    expected = losses_behind(tmp_path / "a.pt", ported)

    ported.load(tmp_path / "a.pt")

    assert train_ported(ported, make_batches()[4:12]) == expected


def test_a_checkpoint_from_before_the_first_call_brings_that_back(tmp_path):
    ported, _optimizer = make()
    expected = losses_behind(tmp_path / "a.pt", ported)

    ported.load(tmp_path / "a.pt")

    assert train_ported(ported, make_batches()[4:12]) == expected


@pytest.mark.parametrize("precision", ["float16", "mixed"])
@pytest.mark.filterwarnings("ignore::porting.adapters.PortingWarning")
def test_moments_keep_more_digits_than_half_weights(precision, tmp_path):
    ported, _optimizer = make(precision=precision)
    train_ported(ported, make_batches()[:4])
    expected = losses_behind(tmp_path / "a.pt", ported)
    other, _optimizer = make(precision=precision)

    other.load(tmp_path / "a.pt")

    assert train_ported(other, make_batches()[4:12]) == expected


def test_the_default_optimizer_and_the_backends_own_go_on_too(tmp_path):
    from porting import simulator

    for make_own in (lambda model: None, lambda model: simulator.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)):

        def port(make_own=make_own):
            torch.manual_seed(1)
            model = nn.Linear(4, 3)
            return to_ipu(model, nn.CrossEntropyLoss(), optimizer=make_own(model))

        ported = port()
        train_ported(ported, make_batches()[:4])
        expected = losses_behind(tmp_path / "a.pt", ported)
        other = port()

        other.load(tmp_path / "a.pt")

        assert train_ported(other, make_batches()[4:12]) == expected


@pytest.mark.parametrize(
    "connect",
    [
        lambda optimizer: ExponentialLR(optimizer, gamma=0.5),
        lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=20),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    ],
    ids=["exponential", "one cycle", "lambda"],
)
def test_schedulers_go_on(connect, tmp_path):
    def rates(ported, optimizer, bridge, num_steps):
        found = []
        for batch in make_batches()[:num_steps]:
            ported(*batch)
            bridge.step()
            found.append(optimizer.param_groups[0]["lr"])
        return found

    ported, optimizer = make()
    bridge = ported.scheduler(connect(optimizer))
    rates(ported, optimizer, bridge, 3)
    ported.save(tmp_path / "a.pt")
    expected = rates(ported, optimizer, bridge, 5)
    other, optimizer = make()
    bridge = other.scheduler(connect(optimizer))

    other.load(tmp_path / "a.pt")

    assert rates(other, optimizer, bridge, 5) == expected
    assert other.optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_a_plain_scheduler_is_handed_over(tmp_path):
    ported, optimizer = make()
    scheduler = ReduceLROnPlateau(optimizer, patience=0)
    ported(*make_batches()[0])
    scheduler.step(1.0)
    scheduler.step(2.0)
    ported.save(tmp_path / "a.pt", schedulers=[scheduler])
    other, optimizer = make()
    plain = ReduceLROnPlateau(optimizer, patience=0)

    other.load(tmp_path / "a.pt", schedulers=[plain])

    assert (plain.best, optimizer.param_groups[0]["lr"]) == (1.0, pytest.approx(0.001))


def test_other_schedulers_are_refused_before_anything_changes(tmp_path):
    ported, optimizer = make()
    kept = ported.scheduler(ExponentialLR(optimizer, gamma=0.5))
    train_ported(ported, make_batches()[:2])
    ported.save(tmp_path / "a.pt")
    kept.step()
    other, _optimizer = make()
    before = other.state_dict()

    with pytest.raises(CheckpointError, match="schedulers: 1 instead of 0"):
        other.load(tmp_path / "a.pt")

    assert all(torch.equal(before[name], tensor) for name, tensor in other.state_dict().items())


def test_step_epoch_and_extra_are_the_callers(tmp_path):
    ported, _optimizer = make()
    ported.save(tmp_path / "a.pt", step=7, epoch=2, extra={"best": 0.5})

    checkpoint = ported.load(tmp_path / "a.pt")

    assert (checkpoint.step, checkpoint.epoch, checkpoint.extra) == (7, 2, {"best": 0.5})


def test_a_checkpoint_without_a_training_loads_what_it_has(tmp_path):
    ported, optimizer = make()
    train_ported(ported, make_batches()[:4])
    save_checkpoint(tmp_path / "a.pt", model=ported.model, optimizer=optimizer, step=4)
    other, _optimizer = make()

    checkpoint = other.load(tmp_path / "a.pt")

    assert (checkpoint.training, checkpoint.epoch, checkpoint.step) == (None, None, 4)
    assert torch.equal(other.state_dict()["0.weight"], ported.state_dict()["0.weight"])
    assert other.optimizer_state_dict()["state"][0]["exp_avg"].any()


def test_the_weights_of_a_saved_training_load_anywhere(tmp_path):
    ported, _optimizer = make()
    ported.save(tmp_path / "a.pt")

    make()[0].load_state_dict(tmp_path / "a.pt")

    assert load_checkpoint(tmp_path / "a.pt").optimizer["param_groups"]


def test_another_instance_gets_a_stream_of_its_own(tmp_path, monkeypatch):
    ported, _optimizer = make(seed=3)
    train_ported(ported, make_batches()[:2])
    expected = losses_behind(tmp_path / "a.pt", ported)
    other, _optimizer = make(seed=3)
    monkeypatch.setattr("porting.api.training_state.this_instance", lambda: type("Second", (), {"index": 1})())

    other.load(tmp_path / "a.pt")

    assert train_ported(other, make_batches()[4:12]) != expected


def test_other_generators_are_told(tmp_path):
    ported, _optimizer = make()
    data = torch.utils.data.TensorDataset(torch.ones(6, 4))
    own = torch.utils.data.DataLoader(data, shuffle=True, generator=torch.Generator())
    ported.save(tmp_path / "a.pt", loader=own)

    with pytest.warns(PortingWarning, match="K004"):
        ported.load(tmp_path / "a.pt", loader=torch.utils.data.DataLoader(data, shuffle=True))
