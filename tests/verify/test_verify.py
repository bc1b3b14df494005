"""`verify`: what it leaves alone, how it ends, and what its certificate says."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

import porting
from porting import LossTerm, PlainTraining, PortedTraining, PortingError, PortOptions
from porting.verify import Verdict
from porting.verify.records import Record


class Net(nn.Module):
    """A layer, BatchNorm, Dropout, a layer."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(F.dropout(self.norm(self.first(x)).relu(), 0.2, self.training))


class Failing(nn.Module):
    """Raises in its seventh call."""

    def __init__(self, error):
        super().__init__()
        self.layer, self.error, self.calls = nn.Linear(5, 3), error, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 7:
            raise self.error
        return self.layer(x)


def batch(rows=24):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 5, generator=generator), torch.randint(3, (rows,), generator=generator)


def sgd(model, **settings):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **settings})


def port(model, **settings):
    options = PortOptions(keep_gradients=True)
    return porting.to_ipu(model, F.cross_entropy, optimizer=sgd(model), options=options, device="sim", **settings)


def snapshot(model, optimizer):
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


def are_same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(are_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_same, one, other))
    return one == other


def test_nothing_of_the_users_changes():
    model = Net()
    optimizer = sgd(model)
    schedule = StepLR(optimizer, 1)
    before, stream, threads = snapshot(model, optimizer), torch.get_rng_state(), torch.get_num_threads()
    last_epoch = schedule.last_epoch

    certificate = porting.verify(
        model, F.cross_entropy, batch(), optimizer=optimizer, scheduler=schedule, steps=4, device="sim"
    )

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert are_same(before, snapshot(model, optimizer))
    assert torch.equal(stream, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert schedule.last_epoch == last_epoch
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_port_of_the_users_is_as_before_and_can_be_proved_again():
    model = Net()
    twin = copy.deepcopy(model)
    optimizer = sgd(twin)
    ported = porting.to_ipu(
        twin, F.cross_entropy, optimizer=optimizer, options=PortOptions(keep_gradients=True), device="sim"
    )
    bridge = ported.scheduler(StepLR(optimizer, 2))
    weights, rate = copy.deepcopy(dict(ported.state_dict())), optimizer.param_groups[0]["lr"]
    plain_optimizer = sgd(model)
    plain = PlainTraining(model, F.cross_entropy, plain_optimizer, StepLR(plain_optimizer, 2))

    verdicts = [porting.verify(plain, batches=batch(), ported=ported, steps=5).verdict for _ in range(2)]

    assert verdicts == [Verdict.PASS, Verdict.PASS]
    assert are_same(weights, dict(ported.state_dict()))
    assert optimizer.param_groups[0]["lr"] == rate == bridge.get_last_lr()[0]


@pytest.mark.parametrize("error", [ValueError("no more"), KeyboardInterrupt()])
def test_an_error_in_plain_pytorch_ends_the_proof(error):
    options = PortOptions(frozen="allow")

    certificate = porting.verify(Failing(error), F.cross_entropy, batch(), options=options, steps=20, device="sim")

    assert certificate.verdict is Verdict.INCOMPLETE
    assert "plain PyTorch ended after step 6" in certificate.reason
    assert certificate.num_steps_asked == 20


@pytest.mark.parametrize("error", [ValueError("no more"), KeyboardInterrupt()])
def test_an_error_in_the_ports_run_leaves_what_was_compared(error):
    calls = []

    def call(ported, *args):
        calls.append(args)
        if len(calls) == 5:
            raise error
        return ported(*args)

    model = Net()
    certificate = porting.verify(
        model,
        F.cross_entropy,
        batch(),
        optimizer=sgd(model),
        ported=lambda copied: PortedTraining(port(copied), call=call),
        steps=20,
    )

    assert certificate.verdict is Verdict.INCOMPLETE
    assert certificate.num_steps == 4
    assert "the port ended after step 4" in certificate.reason
    assert "4 steps were compared until then" in certificate.reason


def test_training_that_magnifies_rounding_is_chaotic():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))

    certificate = porting.verify(
        model, F.cross_entropy, batch(), optimizer=sgd(model, lr=8.0, momentum=0), device="sim"
    )

    assert certificate.verdict is Verdict.CHAOTIC
    assert 2 < certificate.num_steps < 50
    assert "rounding alone" in certificate.reason


def test_losses_that_are_finite_on_neither_side_end_what_is_compared():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
    x = 100 * batch()[0]

    certificate = porting.verify(
        model, nn.MSELoss(), (x, torch.zeros(24, 3)), optimizer=sgd(model, lr=1e3), steps=20, device="sim"
    )

    assert certificate.verdict is Verdict.INCOMPLETE
    assert "the loss is not finite from step" in certificate.reason
    assert certificate.num_steps < 10


def test_a_loss_that_is_never_finite_shows_nothing():
    x, y = batch()

    certificate = porting.verify(Net(), F.cross_entropy, (x * float("nan"), y), steps=3, device="sim")

    assert certificate.verdict is Verdict.INCOMPLETE


def test_the_port_must_be_one_of_a_copy():
    model = Net()

    with pytest.raises(PortingError, match="V002"):
        porting.verify(model, F.cross_entropy, batch(), optimizer=sgd(model), ported=port(model), steps=2)


@pytest.mark.parametrize(
    "arguments", [{"batches": None}, {"ported": lambda copied: copied}, {"optimizer": lambda _model: sgd(Net())}]
)
def test_what_cannot_be_compared_is_refused(arguments):
    with pytest.raises(PortingError, match="V002"):
        porting.verify(Net(), F.cross_entropy, **{"batches": batch(), "steps": 2, "device": "sim", **arguments})


def test_the_record_of_a_certificate_can_be_read_again():
    certificate = porting.verify(Net(), F.cross_entropy, batch(), steps=3, device="sim")
    record = Record.from_dict(certificate.record)

    assert record.num_steps == 3
    assert record.to_dict().items() <= dict(certificate.record).items()
    assert set(certificate.hashes) == {"source", "weights", "data", "options"}
    assert certificate.surroundings["device"]["is_simulator"] is True
    assert len(certificate.curves.plain) == len(certificate.curves.reference or (0, 0, 0)) == 3


def test_a_port_that_keeps_its_gradients_is_compared_by_its_updates():
    model = Net()

    def keep_to_itself(copied):
        return porting.to_ipu(copied, F.cross_entropy, optimizer=sgd(copied, lr=0.06), device="sim")

    certificate = porting.verify(model, F.cross_entropy, batch(), optimizer=sgd(model), ported=keep_to_itself, steps=3)

    kinds = {kind.kind: kind for kind in certificate.kinds}
    assert kinds["gradient"].verdict is Verdict.NOT_COMPARED
    assert "keep_gradients" in kinds["gradient"].note
    assert certificate.first.kind == "learning rate"


def test_a_training_that_is_another_one_each_time_proves_nothing_and_is_named():
    model = nn.Linear(5, 3)
    calls = itertools.count(1)

    def loss(outputs, labels):
        return F.cross_entropy(outputs, labels) * (1 + 0.01 * next(calls))

    options = PortOptions(frozen="allow")
    certificate = porting.verify(model, loss, batch(), optimizer=sgd(model), steps=3, options=options, device="sim")

    assert certificate.verdict is not Verdict.PASS
    assert "another one each time" in str(certificate)


# -- the course of a proof ---------------------------------------------------------------------------------------------

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
