from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, fit, to_ipu
from porting.api.compiled_in import HostWrites
from porting.diagnostics import CaptureError, CheckpointError, OptionError, PortingError


def make_model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def make_port(model: nn.Module, lr: float = 0.5, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options)), optimizer


@pytest.fixture
def batch():
    return torch.randn(6, 4), torch.randint(3, (6,))


def test_weights_loaded_into_the_users_own_model_reach_the_device(batch):
    model, start = make_model(), make_model().state_dict()
    ported, _ = make_port(model)
    first = ported(*batch)[1]
    ported(*batch)

    model.load_state_dict(start)

    assert torch.equal(ported(*batch)[1], first)


def test_a_write_in_place_reaches_the_device(batch):
    model = make_model()
    ported, _ = make_port(model, lr=0.0)
    ported(*batch)

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()

    torch.testing.assert_close(ported(*batch)[1], torch.tensor(3.0).log())


def test_inference_follows_writes_on_the_host(batch):
    model = make_model()
    ported, _ = make_port(model)
    infer = ported.inference()
    infer(batch[0])

    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})

    assert torch.equal(infer(batch[0]), torch.zeros(6, 3))


def test_looking_at_the_weights_sends_nothing_back(batch, monkeypatch):
    model = make_model()
    ported, _ = make_port(model)
    ported(*batch)
    sent = []
    executor = ported.device_executor
    monkeypatch.setattr(executor, "copyWeightsToDevice", lambda: sent.append(True))

    ported.state_dict()
    ported(*batch)

    assert sent == []


def test_writes_are_counted_once():
    model = make_model()
    writes = HostWrites(model, trains=True)

    with torch.no_grad():
        model[0].weight.mul_(2)
    noticed = [writes.is_written()]
    writes.note_agreement()

    assert [*noticed, writes.is_written()] == [True, False]


def test_a_setting_changed_on_the_devices_optimizer_stays(batch):
    ported, _ = make_port(make_model())
    ported(*batch)
    before = ported.state_dict()

    for group in ported.optimizer.param_groups:
        group.update(lr=0.0)
    ported(*batch)

    assert ported.optimizer.param_groups[0]["lr"] == 0.0
    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())


def test_a_scheduler_of_the_devices_optimizer_reaches_the_device(batch):
    model = make_model()
    reference = copy.deepcopy(model)
    plain = torch.optim.SGD(reference.parameters(), lr=0.5, momentum=0.9)
    decay = torch.optim.lr_scheduler.ExponentialLR(plain, 0.5)
    ported, _ = make_port(model)
    bridge = ported.scheduler(torch.optim.lr_scheduler.ExponentialLR(ported.optimizer, 0.5))

    for _ in range(4):
        loss = ported(*batch)[1]
        bridge.step()
        plain.zero_grad()
        expected = F.cross_entropy(reference(batch[0]), batch[1])
        expected.backward()
        plain.step()
        decay.step()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_torch_optimizers_own_state_dict_has_the_devices_state(batch):
    model = make_model()
    ported, optimizer = make_port(model)
    ported(*batch)

    state = optimizer.state_dict()["state"]

    assert sorted(state) == [0, 1, 2, 3]
    assert state[0]["momentum_buffer"].abs().sum() > 0


def test_a_scheduler_without_the_bridge_steps_without_a_warning(batch):
    ported, optimizer = make_port(make_model())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    ported(*batch)

    scheduler.step()
    ported(*batch)

    assert ported.optimizer.param_groups[0]["lr"] == 0.25


def test_integers_that_only_the_host_can_hold_stay_there(batch):
    model = make_model()
    model.register_buffer("large", torch.tensor([2**40]))
    ported, _ = make_port(model)

    ported(*batch)

    assert ported.state_dict()["large"].item() == 2**40


def test_a_batch_that_the_device_cannot_run_does_not_become_the_pattern(batch):
    ported, _ = make_port(make_model())
    with pytest.raises(Exception, match="dtype"):
        ported(torch.ones(6, 4, dtype=torch.int64), batch[1])

    output, _ = ported(*batch)

    assert output.shape == (6, 3)


def test_a_model_with_nothing_to_train_is_refused(batch):
    model = make_model().requires_grad_(False)

    with pytest.raises(PortingError) as refused:
        to_ipu(model, nn.CrossEntropyLoss())(*batch)

    assert refused.value.code == "L003"


def test_gradient_hooks_are_refused(batch):
    model = make_model()
    model[0].weight.register_hook(lambda gradient: gradient * 0)

    with pytest.raises(CaptureError) as refused:
        make_port(model)[0](*batch)

    assert refused.value.code == "C007"
    assert "`0.weight`" in str(refused.value)


def test_a_view_of_a_trained_parameter_as_buffer_is_refused(batch):
    model = make_model()
    model.register_buffer("first_row", model[0].weight.detach()[0])

    with pytest.raises(CaptureError) as refused:
        make_port(model)[0](*batch)

    assert refused.value.code == "C016"


def test_views_that_nothing_writes_to_may_share_memory(batch):
    model = make_model()
    table = torch.arange(6.0)
    model.register_buffer("table", table)
    model.register_buffer("half_of_it", table[:3])
    ported, _ = make_port(model)

    ported(*batch)

    assert torch.equal(ported.state_dict()["half_of_it"], table[:3])


def test_fit_trains_after_eval(batch):
    ported, _ = make_port(make_model())
    ported.eval()

    first, second = fit(ported, [batch], epochs=2, progress=False)

    assert second < first
    assert ported.training


def test_weights_of_other_shapes_are_refused_before_any_is_loaded(batch):
    ported, _ = make_port(make_model())
    ported(*batch)
    before = ported.state_dict()

    with pytest.raises(CheckpointError) as refused:
        ported.load_state_dict({"0.weight": torch.zeros(8, 4), "2.weight": torch.zeros(1, 1)}, strict=False)

    assert refused.value.code == "K002"
    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())


def test_replicas_of_a_model_that_writes_a_buffer_say_which_option_to_set(batch):
    class KeepsMean(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean.lerp_(x.mean(0), 0.1)
            return super().forward(x - self.mean)

    model = KeepsMean()

    with pytest.raises(OptionError, match="broadcast_buffers=False") as refused:
        make_port(model, replicas=2)[0](*batch)

    assert refused.value.code == "P002"


def test_replicas_of_a_model_with_batch_statistics_are_told_whose_come_to_the_host(batch):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

    with pytest.warns(UserWarning, match="P011"):
        ported, _ = make_port(model, replicas=2)
    ported(*batch)

    assert "P011" in [finding.code for finding in ported.report().findings]


def test_ipu_returns_the_ported_model():
    ported, _ = make_port(make_model())

    assert ported.ipu() is ported


def test_fetching_the_weights_leaves_them_as_a_look_would(batch):
    model = make_model()
    ported, _ = make_port(model)
    ported(*batch)

    ported.copy_weights_to_host()

    assert torch.equal(model[0].weight, ported.state_dict()["0.weight"])


def test_a_buffer_that_was_exchanged_reaches_an_inference_and_the_training_after_it(batch):
    norm = nn.BatchNorm1d(4)
    ported, _ = make_port(nn.Sequential(norm, nn.Linear(4, 3)), lr=0.0)
    ported(*batch)
    infer = ported.inference()
    infer(batch[0])
    ported(*batch)

    norm.running_mean = torch.full((4,), 5.0)
    shown, expected = infer(batch[0]), copy.deepcopy(ported.model).eval()(batch[0])
    ported(*batch)

    torch.testing.assert_close(shown, expected.detach())
    torch.testing.assert_close(norm.running_mean, torch.full((4,), 4.5) + 0.1 * batch[0].mean(0))
