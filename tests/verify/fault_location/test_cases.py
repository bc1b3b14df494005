"""Numbers explain the port's where every tensor has them and most of the difference is explained."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.verify.certificate import Measured
from porting.verify.fault_location.cases import (
    Case,
    count_rows,
    find_labels,
    find_more_of,
    find_steadiness,
    fit,
    gives,
    is_multiple,
    join_tensors,
    times,
    try_labels,
    try_mode,
    try_rows,
    try_settings,
    try_slots,
    when,
)
from tests.verify.fault_location.steps import make_evidence, make_loss_case, make_training, make_update_case


def make_case(plain, ported, **settings):
    sides = [{name: torch.tensor(values) for name, values in side.items()} for side in (plain, ported)]
    return Case(sides[0], sides[1], list(plain), **settings)


PLAIN = {"weight": [1.0, 2.0, 3.0], "bias": [4.0]}
DOUBLED = {"weight": [2.0, 4.0, 6.0], "bias": [8.0]}


def double(case):
    return 2 * case.sides[0]


# -- what explains a case ----------------------------------------------------------------------------------------------


def test_the_port_s_own_numbers_explain_it():
    case = make_case(PLAIN, DOUBLED)

    assert case.is_explained_by(case.sides[1])
    assert case.factor == 2.0
    assert is_multiple(case)


@pytest.mark.parametrize("numbers", [[2.0, 4.0, 6.0, 9.0], [1.0, 2.0, 3.0, 4.0], [math.nan] * 4])
def test_other_numbers_explain_nothing(numbers):
    assert not make_case(PLAIN, DOUBLED).is_explained_by(torch.tensor(numbers, dtype=torch.float64))


def test_what_differs_in_nothing_needs_no_explanation():
    case = make_case(PLAIN, PLAIN)

    assert not case.is_explained_by(case.sides[1])


def test_one_tensor_that_is_off_spoils_a_factor_of_all_others():
    case = make_case({"large": [100.0, 100.0], "small": [1.0]}, {"large": [200.0, 200.0], "small": [2.2]})

    assert not is_multiple(case)


def test_a_tensor_that_is_rounding_alone_spoils_nothing():
    case = make_case({"large": [100.0, 100.0], "small": [1e-6]}, {"large": [200.0, 200.0], "small": [3e-6]})

    assert is_multiple(case)


def test_the_first_numbers_alone_may_explain_a_case():
    case = make_case({"rate": [1.0, 2.0, 3.0]}, {"rate": [2.0, 3.0, 7.0]})

    assert case.is_explained_by(torch.tensor([2.0, 3.0], dtype=torch.float64))


def test_a_narrow_tolerance_leaves_less_unexplained():
    numbers = torch.tensor([1.0, 2.001], dtype=torch.float64)

    assert make_case({"loss": [1.0, 1.0]}, {"loss": [1.0, 2.0]}).is_explained_by(numbers)
    assert not make_case({"loss": [1.0, 1.0]}, {"loss": [1.0, 2.0]}, tolerance=1e-4).is_explained_by(numbers)


def test_tensors_are_joined_in_float64_in_the_order_of_the_names():
    tensors = {"b": torch.ones(2, dtype=torch.float16), "a": torch.zeros(1, 1)}

    assert join_tensors(tensors, ["a", "b"]).tolist() == [0.0, 1.0, 1.0]
    assert join_tensors(tensors, []).numel() == 0


@pytest.mark.parametrize("shares", [(1.0, 2.0), (0.0, 1.0)])
def test_a_sum_is_taken_apart(shares):
    columns = [{"weight": torch.randn(8)} for _ in shares]
    ported = sum(share * column["weight"] for share, column in zip(shares, columns))

    found = fit(Case({"weight": torch.ones(8)}, {"weight": ported}, ["weight"]), columns)

    assert found == pytest.approx(shares, abs=1e-5)


def test_what_is_no_sum_is_not_taken_apart():
    case = Case({"weight": torch.ones(8)}, {"weight": torch.randn(8)}, ["weight"])

    assert fit(case, [{"weight": torch.arange(8.0)}]) is None
    assert fit(case, [{"other": torch.arange(8.0)}]) is None
    assert fit(case, [{"weight": torch.zeros(8)}]) is None


def test_what_the_port_has_beyond_plain_pytorch_is_taken_apart():
    more = {"weight": torch.randn(8)}
    case = Case({"weight": torch.ones(8)}, {"weight": 1 + 0.25 * more["weight"]}, ["weight"])

    assert fit(case, [more], onto_plain=True) == pytest.approx([0.25], abs=1e-6)


# -- other steps -------------------------------------------------------------------------------------------------------


def make_kept(*ratios):
    first = Measured("update", "weight", 1, 1.0, 1.0, 0.0)
    kept = {step: {"weight": ratio, "bias": ratio} for step, ratio in enumerate(ratios, 1)}
    return make_case(PLAIN, DOUBLED, evidence=SimpleNamespace(first=first, ratios={"update": kept}))


@pytest.mark.parametrize(
    ("ratios", "steady"),
    [
        ((2.0, 2.0, 2.0), True),
        ((2.0, 1.7, 2.5, 1.6), True),
        ((2.0, 2.0), None),
        ((2.0, 1.0, 1.0), False),
        ((2.0, 2.0, 0.5), False),
        ((2.0, 0.0, 2.0), False),
        ((2.0, 2.0, 2.0, 2.0, 1.0), True),
    ],
)
def test_a_ratio_is_steady_where_the_next_steps_have_it(ratios, steady):
    assert find_steadiness(make_kept(*ratios), "update") is steady


def test_of_a_kind_that_was_not_kept_nothing_is_known():
    assert find_steadiness(make_kept(2.0, 2.0, 2.0), "gradient") is None


# -- predicates --------------------------------------------------------------------------------------------------------


def test_predicates_return_what_the_words_have_in_braces():
    case = make_case(PLAIN, DOUBLED, evidence=SimpleNamespace(ratios={}))

    assert gives(double)(case) == {}
    assert gives(lambda case: None)(case) is None
    assert times(lambda case: 2)(case) == {"part": ""}
    assert times(lambda case: 0.5)(case) is None
    assert times(lambda case: 3)(case) is None
    assert when(lambda case: False, gives(double))(case) is None


def test_a_part_is_told_from_a_multiple():
    assert times(lambda case: 2)(make_case(DOUBLED, PLAIN, evidence=SimpleNamespace(ratios={}))) == {"part": "1 / "}


@pytest.mark.slow
def test_less_of_something_is_told_too():
    def change(model, optimizer):
        optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * 0.2 * parameter.grad)

    case = make_update_case(lambda parameters: torch.optim.SGD(parameters, lr=0.01), change)

    found = find_more_of(lambda case: case.evidence.step.gradients)(case)

    assert found["more"] == "0.2 less than in plain PyTorch"


# -- trials ------------------------------------------------------------------------------------------------------------


def compute(model, loss, x, y):
    return loss(model(x), y)


def test_a_trial_with_nothing_changed_gives_plain_pytorch_s_losses():
    case = make_loss_case(compute, parts=2, model=nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5)))

    assert torch.allclose(try_labels(lambda y: y, True, case), case.sides[0])
    assert torch.allclose(try_labels(lambda y: y, False, case), case.sides[0])
    assert torch.allclose(try_mode(True, case), case.sides[0])
    assert not torch.allclose(try_mode(False, case), case.sides[0])


def test_a_trial_leaves_the_model_and_the_random_streams_as_they_were():
    case = make_loss_case(compute, model=nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))
    model = case.evidence.plain.model
    before = [value.clone() for value in model.state_dict().values()], torch.get_rng_state(), model.training

    try_mode(False, case)
    try_rows(slice(None, -1), case)

    assert all(map(torch.equal, before[0], model.state_dict().values()))
    assert torch.equal(before[1], torch.get_rng_state())
    assert model.training is before[2]


@pytest.mark.parametrize("change", [lambda y: y.roll((0, 1), (0, 1)), lambda y: y.reshape(7, 7), lambda y: y + 100])
def test_a_trial_that_cannot_be_made_gives_nothing(change):
    assert try_labels(change, True, make_loss_case(compute)) is None


def test_a_single_micro_batch_is_the_whole_step():
    assert try_labels(lambda y: y, False, make_loss_case(compute)) is None


@pytest.mark.parametrize(
    ("label", "micro_batch", "is_found"),
    [
        (-1, ((torch.zeros(2), torch.ones(2)), {}), True),
        (1, ((torch.zeros(2), torch.ones(2)), {}), True),
        ("y", ((torch.zeros(2),), {"y": torch.ones(2)}), True),
        (("y", "z"), ((), {"x": torch.zeros(2), "y": torch.ones(2)}), True),
        (-1, ((), {"x": torch.zeros(2), "y": torch.ones(2)}), True),
        ("y", ((torch.zeros(2),), {}), False),
        (3, ((torch.zeros(2), torch.ones(2)), {}), False),
        (-1, ((torch.zeros(2), 7), {}), False),
    ],
)
def test_the_labels_are_what_label_names(label, micro_batch, is_found):
    found = find_labels(make_training(label=label), micro_batch)

    assert (found is not None) is is_found
    assert found is None or bool(found.all())


def test_the_rows_are_those_of_the_first_tensor_that_has_any():
    evidence = make_evidence(micro_batches=[((torch.tensor(1.0), torch.zeros(3, 2)), {})])

    assert count_rows(Case(evidence=evidence)) == 3
    assert count_rows(Case(evidence=make_evidence(micro_batches=[((7,), {})]))) == 1


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def test_the_plain_settings_give_plain_pytorch_s_update():
    case = make_update_case(sgd, lambda _model, _optimizer: None)

    assert torch.allclose(try_settings({}, case), case.sides[0])
    assert torch.allclose(try_slots(lambda slot, value: value, case), case.sides[0])


def test_a_setting_that_the_optimizer_has_not_is_not_tried():
    case = make_update_case(sgd, lambda _model, _optimizer: None)

    assert try_settings({"betas": (0.9, None)}, case) is None
    assert try_slots(lambda slot, value: None, make_update_case(sgd, lambda *_: None, steps=1)) is None
