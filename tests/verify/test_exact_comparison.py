"""Two observed programs are the same only where every bit is."""

from __future__ import annotations

import pytest
import torch

from porting.verify.exact_comparison import count_compared, find_difference
from porting.verify.observation import Observation, ObservedTraining
from porting.verify.records import Record

TENSORS = {"gradient": 0.5, "parameter": 1.5, "optimizer state": 2.5, "buffer": 3.5}


def make_training(*, prefix="", steps=2, loss=1.0, is_changed=lambda kind, step: False, **more):
    record = Record(is_exact=True)
    for step in range(1, steps + 1):
        record.losses[step], record.rates[step] = [loss], [0.1]
        for kind, value in TENSORS.items():
            tensor = torch.full((3,), value)
            if is_changed(kind, step):
                tensor[1] = torch.nextafter(tensor[1], torch.tensor(9.0))
            owner = "momentum of " if kind == "optimizer state" else ""
            record.keep(kind, step, {f"{owner}{prefix}weight": tensor})
    for kind, tensors in more.items():
        record.keep(kind, 1, tensors)
    rows = {step: [] for step in record.losses}
    return ObservedTraining(record, shapes={f"{prefix}weight": (3,)}, rows=rows)


def compare(ours, theirs, *, num_steps=2):
    return find_difference(Observation(ours), Observation(theirs), num_steps=num_steps)


def test_the_same_numbers_are_the_same():
    assert compare([make_training()], [make_training()]) is None


@pytest.mark.parametrize("kind", TENSORS)
def test_a_last_bit_of_any_kind_is_found_in_its_step(kind):
    changed = make_training(is_changed=lambda found, step: (found, step) == (kind, 2))

    found = compare([make_training()], [changed])

    assert (found.kind, found.step) == (kind, 2)
    assert compare([make_training()], [changed], num_steps=1) is None


def test_of_several_differences_the_one_that_others_follow_from_is_named():
    found = compare([make_training()], [make_training(is_changed=lambda _kind, step: step == 2)])

    assert (found.kind, found.step) == ("gradient", 2)


def test_a_wrapper_gives_parameters_other_names():
    assert compare([make_training()], [make_training(prefix="model.")]) is None


def test_losses_are_the_same_to_the_last_digit():
    found = compare([make_training()], [make_training(loss=1.0000000000000002)])

    assert found.kind == "loss"
    assert "1.0000000000000002" in found.note


def test_losses_that_are_no_numbers_are_the_same():
    assert compare([make_training(loss=float("nan"))], [make_training(loss=float("nan"))]) is None


def test_a_step_less_is_found():
    found = compare([make_training()], [make_training(steps=1)])

    assert (found.name, found.step) == ("steps", 2)


def test_another_number_of_optimizers_is_found():
    assert compare([make_training(), make_training()], [make_training()]).name == "optimizers"


def test_a_model_may_return_its_loss_besides():
    ours = {"output": {"output 0": torch.ones(2, 3)}}
    theirs = {"output": {"output 0": torch.zeros(1), "output 1": torch.ones(2, 3)}}

    assert compare([make_training(**ours)], [make_training(**theirs)]) is None
    assert compare([make_training(**ours)], [make_training(output={"output 0": torch.zeros(2, 3)})]).kind == "output"


def test_what_is_compared_is_counted():
    found = count_compared(Observation([make_training()]), Observation([make_training()]), num_steps=1)

    assert found == {"gradient": 1, "parameter": 1, "optimizer state": 1, "buffer": 1, "loss": 1}
