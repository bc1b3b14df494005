"""Each part of a step is searched: operators, loss, gradients, buffers, update, and the state of the optimizer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from porting.verify.certificate import Measured
from porting.verify.fault_location.evidence import gather_evidence
from porting.verify.fault_location.step_faults import (
    find_backward_fault,
    find_buffer_fault,
    find_forward_fault,
    find_loss_fault,
    find_update_fault,
)
from tests.verify.fault_location.ports import Around, Net, build_pair, change_attribute, make_batches

FINDERS = [find_forward_fault, find_loss_fault, find_backward_fault, find_buffer_fault, find_update_fault]


class Counting(Net):
    """A network that counts the samples it has seen, beyond 32 bits after the first step."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.tensor([2**31 - 4, 5]))

    def forward(self, x):
        self.seen.add_(8)
        return super().forward(x)


class Hashing(nn.Module):
    """A network that hashes its ids, beyond 32 bits on the way."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        ids = torch.arange(8) * 3000000000
        return self.head(x) + (ids % 7).unsqueeze(1)


class Leaving(Around):
    """A port whose calls are followed by something that changes its model."""

    def __init__(self, ported, change):
        super().__init__(ported)
        self.__dict__["change"] = change

    def __call__(self, *args):
        result = self.inner(*args)
        with torch.no_grad():
            self.change(self.inner.model)
        self.inner.copy_weights_to_device()
        return result


def gather(change=None, *, kind=Net, leave=None, first=("loss", "loss"), ratios=None, **options):
    plain, ported = build_pair(change, kind=kind, **options)
    port = ported if leave is None else Leaving(ported, leave)
    return gather_evidence(
        plain,
        port,
        (make_batches()[0], {}),
        first=Measured(*first, 1, 1.0, 1.0, 1e-6),
        make_call=lambda args, kwargs: port(*args),
        ratios=ratios,
    )


@pytest.mark.parametrize("options", [{}, {"accumulation": 2}, {"device_iterations": 2}])
@pytest.mark.parametrize("find", FINDERS)
def test_in_a_sound_port_nothing_is_found(find, options):
    assert find(gather(**options)) is None


def test_the_first_operator_is_found_with_its_reproduction():
    found = find_forward_fault(gather(change_attribute("norm", "eps", 0.1)))

    assert (found.phase, found.module, found.operator) == ("forward", "norm", "aten.native_batch_norm")
    assert found.place is not None
    assert "nn.BatchNorm1d" in found.reproduction


def test_an_operator_is_found_in_half_of_a_step():
    found = find_forward_fault(gather(change_attribute("", "scale", 2.5), accumulation=2))

    assert (found.phase, found.module, found.operator) == ("forward", "Net", "aten.mul")


def narrow_operator(evidence):
    """Return evidence in which the port's whole numbers have 32 bits."""
    trace = evidence.replayed.micro_batches[0]
    for number, record in enumerate(trace.values):
        if record.name == "aten.mul":
            narrow = tuple(result.int().long() for result in record.results)
            trace.values[number] = replace(record, results=narrow)
    return evidence


def test_whole_numbers_that_a_device_does_not_hold_are_told_of_an_operator():
    found = find_forward_fault(narrow_operator(gather(kind=Hashing)))

    assert found.operator == "aten.mul"
    assert "which 32 bits do not hold: a device has no more" in found.cause


def test_another_loss_of_the_same_values_is_explained():
    evidence = gather()

    found = find_loss_fault(replace(evidence, losses=[0.5 * loss for loss in evidence.losses]))

    assert found.phase == "loss"
    assert "the loss is 0.5 times plain PyTorch's" in found.cause
    assert "replayed operator by operator" in found.cause


def test_a_loss_that_nothing_explains_is_one_of_an_output_where_that_differed():
    evidence = gather(first=("output", "output 0"))

    found = find_loss_fault(replace(evidence, losses=[1.2345678 * loss for loss in evidence.losses]))

    assert found.phase == "forward"


@pytest.mark.parametrize(("factor", "words"), [(0.5, "0.5 times"), (0.0, "every gradient is zero")])
def test_what_all_gradients_have_in_common_is_told(factor, words):
    evidence = gather()
    gradients = {name: factor * value for name, value in evidence.gradients.items()}

    found = find_backward_fault(replace(evidence, gradients=gradients))

    assert (found.phase, found.module) == ("backward", "Net")
    assert words in found.cause


@pytest.mark.parametrize("missing", [True, False])
def test_one_gradient_that_differs_is_told_by_its_parameter(missing):
    evidence = gather()
    gradients = {**evidence.gradients, "head.bias": evidence.gradients["head.bias"] + 1}
    if missing:
        del gradients["head.bias"]

    found = find_backward_fault(replace(evidence, gradients=gradients))

    assert (found.phase, found.module) == ("backward", "head")
    assert ("the port has no gradient of `head.bias`" in found.cause) is missing


def test_a_gradient_that_only_the_port_has_counts_where_it_is_not_zero():
    evidence = gather()
    gradients = {**evidence.gradients, "other": torch.zeros(2)}

    assert find_backward_fault(replace(evidence, gradients=gradients)) is None
    assert find_backward_fault(replace(evidence, gradients={**gradients, "other": torch.ones(2)})) is not None


# -- buffers -----------------------------------------------------------------------------------------------------------


def test_a_buffer_that_something_beside_the_step_writes_is_told():
    found = find_buffer_fault(gather(leave=lambda model: model.norm.running_mean.add_(1.0)))

    assert (found.phase, found.module, found.operator) == ("buffer", "norm", "norm.running_mean")
    assert "something beside the step writes it" in found.cause


def test_statistics_of_another_momentum_are_told_with_a_reproduction():
    found = find_buffer_fault(gather(change_attribute("norm", "momentum", 0.3)))

    assert "as with a momentum of 0.3 in the place of 0.1" in found.cause
    assert "plain.running_mean" in found.reproduction


# the device writes no counters, which is said
UNWRITTEN = pytest.mark.filterwarnings("ignore::UserWarning")


def count_narrowly(model):
    model.seen.copy_(torch.tensor([2**31 + 4, 13]).int())


def count_wrongly(model):
    model.seen.copy_(torch.tensor([2**31 - 4, 7]))


@UNWRITTEN
@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (None, "`seen` is written in plain PyTorch alone: a device has no variables of 64-bit integers"),
        (count_narrowly, f"`seen` is {2**31 + 4}, which 32 bits do not hold: a device has no more, and makes it -"),
        (count_wrongly, "in plain PyTorch, and no whole number is rounded"),
    ],
)
def test_a_counter_has_words_of_its_own(leave, words):
    found = find_buffer_fault(gather(kind=Counting, leave=leave, first=("buffer", "seen")))

    assert (found.phase, found.module, found.operator) == ("buffer", "Counting", "seen")
    assert words in found.cause


@UNWRITTEN
def test_a_counter_that_nobody_asks_for_is_passed_over():
    assert find_buffer_fault(gather(kind=Counting, leave=count_wrongly)) is None


# -- updates -----------------------------------------------------------------------------------------------------------


def stretch(evidence, factor, *names):
    """Return evidence in which the port's updates are a factor longer."""
    before, after = evidence.before.parameters, dict(evidence.after.parameters)
    for name in names or after:
        after[name] = before[name] + factor * (after[name] - before[name])
    return replace(evidence, after=replace(evidence.after, parameters=after))


def test_a_ratio_of_one_step_is_no_learning_rate():
    found = find_update_fault(stretch(gather(first=("update", "head.weight")), 2.0))

    assert (found.phase, found.module, found.operator) == ("update", "first", "SGD")
    assert "2 times plain PyTorch's in this step" in found.cause
    assert "learning rate" not in found.cause


def test_a_ratio_of_all_steps_is_one():
    names = dict(Net().named_parameters())
    kept = {step: dict.fromkeys(names, 2.0) for step in (1, 2, 3)}

    found = find_update_fault(stretch(gather(first=("update", "head.weight"), ratios={"update": kept}), 2.0))

    assert "2 times plain PyTorch's, as another learning rate would make it" in found.cause


def test_a_ratio_of_some_parameters_is_told_with_their_names():
    found = find_update_fault(stretch(gather(first=("update", "head.weight")), 2.0, "head.weight", "head.bias"))

    assert "the update of `head.weight` and `head.bias` is 2 times" in found.cause.replace("`, `", "` and `")


def test_other_settings_are_told_before_the_numbers():
    evidence = gather(first=("update", "head.weight"))
    evidence.plain.optimizer.param_groups[0]["weight_decay"] = 0.5

    assert "weight decay differs" in find_update_fault(stretch(evidence, 2.0)).cause


def test_an_update_of_other_gradients_is_no_fault_of_the_update():
    evidence = stretch(gather(first=("update", "head.weight")), 2.0)
    gradients = {name: 2 * value for name, value in evidence.gradients.items()}

    assert find_update_fault(replace(evidence, gradients=gradients)) is None


def test_a_state_that_differs_where_the_update_does_not_is_told():
    evidence = gather(first=("optimizer state", "momentum_buffer of head.weight"))
    slots = dict(evidence.after.slots)
    slots["head.weight"] = {"momentum_buffer": slots["head.weight"]["momentum_buffer"] + 1}

    found = find_update_fault(replace(evidence, after=replace(evidence.after, slots=slots)))

    assert (found.phase, found.module) == ("update", "head")
    assert "the optimizer's state `momentum_buffer` of `head.weight` differs" in found.cause
