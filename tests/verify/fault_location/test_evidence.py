"""The evidence of a step: both sides run it, the plain training stays, settings are found by module."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.verify.certificate import Measured
from porting.verify.fault_location.evidence import Evidence, copy_changed, find_module, gather_evidence
from porting.verify.fault_location.traced_steps import LOSS, ROOT
from tests.verify.fault_location.ports import Around, Net, build_pair, change_attribute, make_batches, make_sgd
from tests.verify.fault_location.steps import make_training


def gather(plain, ported, *, step=1, call=None, **settings):
    first = Measured("loss", "loss", step, 1.0, 1.0, 0.0)
    call = (make_batches()[0], {}) if call is None else call
    return gather_evidence(plain, ported, call, first=first, make_call=lambda args, kwargs: ported(*args), **settings)


class WithoutReplay(Around):
    """A port on a device that shows no values in between."""

    def keep_call(self, *args, **kwargs):
        kept = self.inner.keep_call(*args, **kwargs)
        return type("KeptCall", (), {"rehearsal": None, "inner": kept})()


def test_both_sides_of_a_sound_port_have_the_same_numbers():
    evidence = gather(*build_pair())

    assert evidence.losses == pytest.approx(evidence.step.losses, rel=1e-6)
    assert evidence.replayed.losses == pytest.approx(evidence.step.losses, rel=1e-6)
    assert evidence.gradients.keys() == evidence.step.gradients.keys()
    for name, value in evidence.step.after.parameters.items():
        assert torch.allclose(value, evidence.after.parameters[name], atol=1e-6)


def test_the_changed_run_differs_by_rounding_alone():
    evidence = gather(*build_pair())

    assert evidence.changed.losses != evidence.step.losses
    assert evidence.changed.losses == pytest.approx(evidence.step.losses, rel=1e-4)


def test_the_plain_training_is_as_before_afterwards():
    plain, ported = build_pair()
    before = [value.clone() for value in plain.model.state_dict().values()], torch.get_rng_state()

    gather(plain, ported)

    assert all(map(torch.equal, before[0], plain.model.state_dict().values()))
    assert torch.equal(before[1], torch.get_rng_state())
    assert not plain.optimizer.state


def test_accumulated_micro_batches_are_those_of_one_step():
    evidence = gather(*build_pair(accumulation=2))

    assert len(evidence.micro_batches) == len(evidence.step.micro_batches) == len(evidence.losses) == 2
    assert len(evidence.micro_batches[0][0][0]) == 4


@pytest.mark.parametrize("step", [1, 2])
def test_of_several_steps_a_call_the_one_that_differs_is_looked_at(step):
    evidence = gather(*build_pair(device_iterations=2), step=step)

    batch = make_batches()[0][0]
    assert torch.equal(evidence.micro_batches[0][0][0], batch.chunk(2)[step - 1])
    assert evidence.losses == pytest.approx(evidence.step.losses, rel=1e-5)


def test_without_a_replay_the_call_alone_is_known():
    plain, ported = build_pair()

    evidence = gather(plain, WithoutReplay(ported))

    assert evidence.replayed is None
    assert evidence.unknown == "this device shows no values in between"
    assert evidence.losses == pytest.approx(evidence.step.losses, rel=1e-6)
    assert evidence.before.parameters.keys() == dict(plain.model.named_parameters()).keys()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ported, x, y: ported(x, y.roll(1, 0)), "the loop's own `call=` changes the label"),
        (lambda ported, x, y: ported(x * 2, y.clone()), "the loop's own `call=` changes argument `0`"),
        (lambda ported, x, y: ported(x * 2, y.flip(0)), "the loop's own `call=` changes argument `0` and the label"),
        (lambda ported, x, y: ported(x.clone(), y), ""),
    ],
)
def test_what_the_loop_changes_of_a_batch_is_told(call, words):
    plain, ported = build_pair()

    evidence = gather_evidence(
        plain,
        ported,
        (make_batches()[0], {}),
        first=Measured("loss", "loss", 1, 1.0, 1.0, 0.0),
        make_call=lambda args, kwargs: call(ported, *args, **kwargs),
    )

    assert evidence.handed.endswith(words)
    assert bool(evidence.handed) == bool(words)


def test_a_batch_that_the_port_cannot_take_is_told():
    plain, ported = build_pair()
    x, y = make_batches()[0]
    ported.compile(x[:-1], y[:-1])

    class Cut(Around):
        def __call__(self, x, y):
            return self.inner(x[:-1], y[:-1])

    evidence = gather(plain, Cut(ported))

    assert evidence.replayed is None
    assert "the port cannot take the batch as it is" in evidence.unknown


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_of_a_module_are_its_own_or_those_around_it():
    plain, ported = build_pair(change_attribute("norm", "eps", 0.1))
    evidence = Evidence(plain, ported, Measured("loss", "loss", 1, 1.0, 1.0, 0.0))

    assert [item.name for item in evidence.list_settings("norm")] == ["eps"]
    assert evidence.list_settings("second") == []
    assert evidence.list_settings(ROOT) == []
    assert evidence.list_settings(LOSS) == []


def test_a_module_without_a_difference_has_that_of_the_model():
    plain, ported = build_pair(change_attribute("", "scale", 3.0))
    evidence = Evidence(plain, ported, Measured("loss", "loss", 1, 1.0, 1.0, 0.0))

    assert [item.name for item in evidence.list_settings("second")] == ["scale"]


def test_optimizers_are_compared_as_the_device_has_them():
    plain, ported = build_pair()
    ported(*make_batches()[0])
    plain.optimizer.param_groups[0]["momentum"] = 0.5
    evidence = Evidence(plain, ported, Measured("loss", "loss", 1, 1.0, 1.0, 0.0))

    (found,) = evidence.optimizer

    assert (found.owner, found.name, found.plain, found.ported) == ("", "momentum", 0.5, 0.9)


@pytest.mark.parametrize(
    ("path", "name"), [(ROOT, "Net"), (LOSS, "CrossEntropyLoss"), ("norm", "norm"), ("first.weight", "first.weight")]
)
def test_modules_have_the_names_that_a_user_knows(path, name):
    plain, ported = build_pair()

    evidence = Evidence(plain, ported, Measured("loss", "loss", 4, 1.0, 1.0, 0.0))

    assert evidence.name_module(path) == name
    assert evidence.locate("forward", path).step == 4
    assert evidence.locate("forward", path).module == name


def test_modules_are_found_by_their_paths():
    model = Net()

    assert find_module(ROOT, model) is model
    assert find_module("norm", model) is model.norm
    assert find_module("nothing", model) is None


# -- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 1e-8), (torch.bfloat16, 1e-4), (torch.float16, 1e-5)])
def test_a_changed_copy_differs_in_the_last_bits_of_a_type(dtype, least):
    plain, _ported = build_pair()

    weight = plain.model.first.weight
    changed = copy_changed(plain, dtype).model.first.weight

    apart = float((weight - changed).detach().abs().max() / weight.detach().abs().max())
    assert least < apart < 5 * torch.finfo(dtype).eps * 16


def test_an_unchanged_copy_is_equal_and_apart():
    plain, _ported = build_pair()

    copied = copy_changed(plain, None)

    assert torch.equal(copied.model.first.weight, plain.model.first.weight)
    assert copied.model is not plain.model
    assert isinstance(copied.loss, nn.CrossEntropyLoss)


def test_whole_parameters_are_not_changed():
    model = nn.Embedding(3, 2)
    model.register_parameter("places", nn.Parameter(torch.arange(3), requires_grad=False))

    training = make_training(model, optimizer=make_sgd([model.weight]))

    assert copy_changed(training, torch.float32).model.places.tolist() == [0, 1, 2]
