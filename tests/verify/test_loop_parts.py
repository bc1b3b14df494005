"""What a loop does besides its steps is asked of both sides: a port whose loop does something else is told."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import porting
from porting import PlainTraining, PortedTraining, PortOptions
from porting.diagnostics import PortingError
from porting.verify import Verdict
from porting.verify.loop_parts import LoopState, LoopWork, step_schedule

NUM_BATCHES = 3


def build(**parts):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return PlainTraining(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **parts)


def batches():
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(4, 6, generator=generator), torch.randint(0, 3, (4,), generator=generator))
        for _ in range(NUM_BATCHES)
    ]


def port(training, **loop):
    """Port a copy of a training, and give it a loop of its own."""

    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        options = PortOptions(keep_gradients=True, device_iterations=loop.get("iterations", 1), output_mode="all")
        ported = porting.to_ipu(model, training.loss, optimizer=optimizer, options=options, device="sim")
        schedule = loop.get("scheduler")
        more = {name: loop[name] for name in ("schedule_every", "each_epoch", "also") if name in loop}
        return PortedTraining(ported, ported.scheduler(schedule(optimizer)) if schedule else None, **more)

    return make


def halve(model, optimizer, epoch):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


def ema(model, decay=0.9):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))


def fail_kinds(certificate):
    return [kind.kind for kind in certificate.kinds if kind.verdict is Verdict.FAIL]


def half_after_each(optimizer):
    return StepLR(optimizer, 1, 0.5)


@pytest.mark.parametrize("pace", ["step", "call", "epoch"])
def test_a_schedule_is_stepped_at_its_pace_on_both_sides(pace):
    training = build(schedule_every=pace)
    training = replace(training, scheduler=half_after_each(training.optimizer))

    certificate = porting.verify(training, batches=batches(), steps=2 * NUM_BATCHES + 1, device="sim")

    assert certificate.verdict is Verdict.PASS, str(certificate)
    changes = {"step": 2 * NUM_BATCHES, "call": 2 * NUM_BATCHES, "epoch": 2}[pace]
    assert certificate.curves.plain_rates[-1] == pytest.approx(0.1 * 0.5**changes)
    assert certificate.curves.ported_rates[-1] == pytest.approx(0.1 * 0.5**changes)


def test_a_port_that_steps_its_schedule_after_calls_of_several_steps_has_other_rates():
    training = build()
    training = replace(training, scheduler=half_after_each(training.optimizer))
    calls = [(torch.cat([x, x]), torch.cat([y, y])) for x, y in batches()]

    own = porting.verify(
        training, batches=calls, steps=6, ported=port(training, scheduler=half_after_each, iterations=2)
    )
    agreed = porting.verify(
        replace(training, schedule_every="call"),
        batches=calls,
        steps=6,
        ported=port(training, scheduler=half_after_each, iterations=2),
    )

    assert own.verdict is Verdict.FAIL
    assert own.location.phase == "schedule"
    assert agreed.verdict is Verdict.PASS, str(agreed)


@pytest.mark.slow
def test_a_schedule_that_is_stepped_at_another_pace_is_told():
    training = build(schedule_every="epoch")
    training = replace(training, scheduler=half_after_each(training.optimizer))

    certificate = porting.verify(training, batches=batches(), steps=5, ported=port(training, scheduler=half_after_each))

    assert certificate.verdict is Verdict.FAIL
    assert certificate.location.phase == "schedule"


@pytest.mark.slow
def test_what_happens_after_an_epoch_happens_on_both_sides():
    certificate = porting.verify(build(each_epoch=halve), batches=batches(), steps=5, device="sim")

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert certificate.curves.ported_rates[NUM_BATCHES - 1 :][:2] == pytest.approx([0.1, 0.05])


def test_a_port_that_does_something_else_after_an_epoch_is_told():
    training = build(each_epoch=halve)
    leaves_it = port(training, each_epoch=lambda model, optimizer, epoch: None)

    certificate = porting.verify(training, batches=batches(), steps=5, ported=leaves_it)

    assert certificate.verdict is Verdict.FAIL
    assert certificate.location.step == NUM_BATCHES + 1


def test_a_layer_that_thaws_after_an_epoch_thaws_on_both_sides():
    def thaw(model, optimizer, epoch):
        model[0].requires_grad_(True)

    def make(model):
        made = port(training)(model)

        def thaw_and_compile(model, optimizer, epoch):
            thaw(model, optimizer, epoch)
            made.model.destroy()

        return replace(made, each_epoch=thaw_and_compile)

    training = build(each_epoch=thaw)
    training.model[0].requires_grad_(False)

    certificate = porting.verify(training, batches=batches(), steps=5, ported=make)

    assert certificate.verdict is Verdict.PASS, str(certificate)


@pytest.mark.slow
def test_a_moving_average_is_compared():
    certificate = porting.verify(build(also=ema), batches=batches(), steps=5, device="sim")

    (kind,) = (kind for kind in certificate.kinds if kind.kind == "loop state")
    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert kind.num_compared > 0


def test_a_moving_average_with_another_decay_is_told():
    training = build(also=ema)
    other = port(training, also=lambda model: ema(model, 0.8))

    certificate = porting.verify(training, batches=batches(), steps=5, ported=other)

    assert certificate.verdict is Verdict.FAIL
    assert fail_kinds(certificate) == ["loop state"]


def test_without_state_of_the_loop_the_certificate_says_so():
    certificate = porting.verify(build(), batches=batches(), steps=2, device="sim")

    (kind,) = (kind for kind in certificate.kinds if kind.kind == "loop state")
    assert kind.verdict is Verdict.NOT_COMPARED
    assert "also=" in kind.note


def test_state_of_a_loop_has_numbers_and_nested_tensors():
    class Kept:
        def update(self, model):
            self.count = 3

        def state_dict(self):
            return {"count": self.count, "shadow": [torch.ones(2)]}

    state = LoopState(Kept(), nn.Linear(1, 1))
    state.update()

    named = state.name_tensors()

    assert {name: value.tolist() for name, value in named.items()} == {"count": 3.0, "shadow.0": [1.0, 1.0]}


@pytest.mark.parametrize("made", [None, object(), nn.Linear(1, 1)])
def test_state_that_cannot_be_brought_forward_is_refused(made):
    with pytest.raises(PortingError, match="V002.*also"):
        LoopState(made, nn.Linear(1, 1))


def test_a_pace_that_is_none_is_refused():
    with pytest.raises(PortingError, match="V002.*'batch'"):
        porting.verify(build(schedule_every="batch"), batches=batches(), steps=2, device="sim")


def test_epochs_are_counted_from_one():
    seen = []
    model = nn.Linear(1, 1)
    work = LoopWork(model, None, [], each_epoch=lambda *arguments: seen.append(arguments))

    for ends_epoch in (False, True, True):
        work.end_step(1.0)
        work.end_call(ends_epoch=ends_epoch)

    assert seen == [(model, None, 1), (model, None, 2)]


def test_a_schedule_that_watches_the_loss_gets_the_mean_since_it_was_stepped():
    class Watching(ReduceLROnPlateau):
        def step(self, metrics):
            seen.append(metrics)

    seen = []
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    work = LoopWork(nn.Linear(1, 1), optimizer, [Watching(optimizer)], pace="epoch")

    for number, loss in enumerate([1.0, 3.0, 5.0]):
        work.end_step(loss)
        work.end_call(ends_epoch=number > 0)

    assert seen == [2.0, 5.0]


def test_no_schedule_is_no_step():
    step_schedule(None, 1.0)


@pytest.mark.slow
def test_the_users_objects_are_not_trained():
    training = build(also=ema, each_epoch=halve)
    before = copy.deepcopy(training.model.state_dict())

    porting.verify(training, batches=batches(), steps=4, device="sim")

    assert all(torch.equal(before[name], value) for name, value in training.model.state_dict().items())
    assert training.optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(("steps", "is_said"), [(1, True), (5, False)])
def test_a_loop_whose_epoch_has_not_ended_is_told_so(steps, is_said):
    certificate = porting.verify(build(each_epoch=halve), batches=batches(), steps=steps, device="sim")

    assert any("no epoch has ended" in note for note in certificate.notes) is is_said
