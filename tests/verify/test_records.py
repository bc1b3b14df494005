"""A record keeps what a run has left in few numbers, tells what ended it, and is the same after it was written."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from porting.verify.records import KINDS, Record, list_kept_steps, name_optimizer_state, sketch_all


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model, optimizer):
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
    return name_optimizer_state(optimizer.state_dict(), optimizer, model)


def make_record():
    model, optimizer = make()
    made = Record({1: [2.0, 1.0], 2: [1.5, math.inf]}, {1: [0.1], 2: [0.05]}, ended_by="ValueError: no more")
    made.keep_state(0, model, {})
    made.keep_state(1, model, train(model, optimizer))
    made.keep("gradient", 1, {name: weight.grad for name, weight in model.named_parameters()})
    return made


def test_a_state_is_parameters_buffers_and_what_the_optimizer_keeps():
    record = make_record()

    assert list(record.sketches["parameter", 0]) == [f"{n}.{kind}" for n in range(3) for kind in ("weight", "bias")]
    assert "1.running_mean" in record.sketches["buffer", 1]
    assert record.sketches["optimizer state", 0] == {}
    assert record.list_steps("parameter") == [0, 1]
    assert record.list_steps("output") == []


def test_the_steps_that_were_made_are_those_with_losses():
    assert [Record().num_steps, make_record().num_steps] == [0, 2]


def test_what_is_kept_stays_while_the_tensors_go_on():
    record, weight = Record(), torch.ones(4, dtype=torch.float64)
    record.keep("parameter", 1, {"weight": weight})

    weight.mul_(7.0)

    assert record.sketches["parameter", 1]["weight"].values.tolist() == [1.0] * 4


def test_tensors_without_elements_are_not_kept():
    assert list(sketch_all({"none": torch.zeros(0, 3), "one": torch.zeros(1)})) == ["one"]


def test_a_record_is_the_same_after_it_was_written():
    record = make_record()

    again = Record.from_dict(json.loads(json.dumps(record.to_dict())))

    assert (again.losses, again.rates, again.ended_by) == (record.losses, record.rates, record.ended_by)
    assert again.sketches.keys() == record.sketches.keys()
    for key, sketches in record.sketches.items():
        for name, sketch in sketches.items():
            read = again.sketches[key][name]
            assert torch.equal(read.values, sketch.values)
            assert (read.shape, read.norm, read.kind) == (sketch.shape, sketch.norm, sketch.kind)


def test_what_was_only_derived_is_not_written():
    record = make_record()
    before = record.to_dict()

    record.differences["update", 1] = record.sketches["parameter", 1]

    assert record.to_dict() == before


@pytest.mark.parametrize("missing", ["losses", "rates", "sketches", "ended_by"])
def test_a_part_that_is_missing_is_an_error(missing):
    plain = make_record().to_dict()
    del plain[missing]

    with pytest.raises(KeyError, match=missing):
        Record.from_dict(plain)


@pytest.mark.parametrize(("error", "said"), [(ValueError("odd"), "ValueError: odd"), (KeyboardInterrupt(), "Keyboard")])
def test_an_error_after_the_first_step_is_told_as_the_end(error, said):
    record = Record()

    with record.noting_its_end():
        record.losses[1] = [1.0]
        raise error

    assert record.ended_by.startswith(said)


def test_an_error_before_the_first_step_comes_through():
    with pytest.raises(ValueError, match="odd"), Record().noting_its_end():
        raise ValueError("odd")


def test_a_run_that_ends_well_tells_nothing():
    record = Record()

    with record.noting_its_end():
        record.losses[1] = [1.0]

    assert record.ended_by == ""


@pytest.mark.parametrize("num_steps", [1, 2, 8, 25, 1234])
@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_the_first_steps_and_the_last_are_kept_and_few_between(num_steps, steps_per_call):
    num_steps *= steps_per_call

    kept, with_gradients = list_kept_steps(num_steps, steps_per_call=steps_per_call)

    assert min(kept) == steps_per_call
    assert max(kept) == num_steps
    assert len(kept) <= 10 + 6 * math.log10(num_steps + 1)
    assert kept <= with_gradients


def test_each_step_is_kept_where_that_is_asked_for():
    assert list_kept_steps(12, steps_per_call=3, is_each_kept=True) == ({3, 6, 9, 12}, set(range(1, 13)))


def test_the_optimizers_state_is_named_after_parameters():
    model, optimizer = make()

    named = train(model, optimizer)

    assert torch.equal(named["exp_avg of 2.bias"], optimizer.state[model[2].bias]["exp_avg"])
    assert "step of 0.weight" in named


def test_a_count_that_is_read_nowhere_is_left_out():
    model, _optimizer = make()

    named = train(model, torch.optim.RMSprop(model.parameters()))

    assert [name for name in named if name.startswith("step")] == []


def test_a_parameter_that_is_not_the_models_has_no_name():
    model, _optimizer = make()
    other = nn.Parameter(torch.ones(2))
    other.grad = torch.ones(2)
    optimizer = torch.optim.SGD([other], lr=0.1, momentum=0.9)
    optimizer.step()

    assert list(name_optimizer_state(optimizer.state_dict(), optimizer, model)) == ["momentum_buffer of ?"]


def test_the_kinds_stand_in_the_order_in_which_a_fault_spreads():
    order = [KINDS.index(kind) for kind in ("output", "loss", "gradient", "update", "parameter", "evaluation")]

    assert order == sorted(order)
