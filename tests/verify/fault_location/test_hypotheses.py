"""Each row of the table: the fault is planted in numbers, and its words are asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.verify.fault_location.cases import Case
from porting.verify.fault_location.hypotheses import CAUSES, explain, iter_causes
from porting.verify.fault_location.step_trace import Origin, TensorForm, ValueRecord
from porting.verify.fault_location.trace_comparison import Apart, ValueFault
from porting.verify.fault_location.traced_steps import ROOT, StateParts, StepTrace
from tests.verify.fault_location.steps import (
    make_evidence,
    make_gradient_case,
    make_loss_case,
    make_training,
    make_update_case,
)

# -- labels, samples and losses ----------------------------------------------------------------------------------------


def with_labels(change):
    return lambda model, loss, x, y: loss(model(x), change(y))


def in_eval_mode(model, loss, x, y):
    return loss(model.eval()(x), y)


def dropping():
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y.roll(-1, 0), "shifted by one sample: each has that of the next"),
        (lambda y: y.roll(1, 0), "shifted by one sample: each has that before it"),
        (lambda y: y.flip(0), "in reverse order of the samples"),
        (torch.zeros_like, "all zero"),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_other_labels_are_recognised(change, words, parts):
    case = make_loss_case(with_labels(change), parts=parts)

    where = "each micro-batch's" if parts > 1 else "the"
    assert f"{where} labels are {words}" in list(iter_causes("labels", case))


@pytest.mark.parametrize(
    ("change", "words", "labels"),
    [
        (lambda y: y + 1, "one class too high", torch.tensor([0, 1, 2, 1, 0, 2])),
        (lambda y: y - 1, "one class too low", torch.tensor([1, 3, 2, 1, 3, 2])),
        (lambda y: 1 - y, "exchanged, 0 for 1", torch.tensor([0, 1, 1, 1, 0, 1])),
    ],
)
def test_other_classes_are_recognised(change, words, labels):
    case = make_loss_case(with_labels(change), labels=[labels])

    assert f"the labels are {words}" in list(iter_causes("labels", case))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: -y, "of the other sign"),
        (lambda y: y.roll(1, 1), "shifted by one place in each sample"),
        (lambda y: y.roll(-1, 1), "shifted by one place in each sample, to the front"),
    ],
)
def test_other_targets_of_a_regression_are_recognised(change, words):
    case = make_loss_case(with_labels(change), loss=nn.MSELoss(), labels=[torch.randn(6, 4)])

    assert explain("labels", case) == f"the labels are {words}"


def test_labels_that_are_shifted_over_the_whole_step_are_told_from_those_of_each_micro_batch():
    labels = [torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([3, 3, 2, 2, 1, 0])]
    shifted = dict(zip(map(id, labels), torch.cat(labels).roll(1, 0).split(6)))

    case = make_loss_case(lambda model, loss, x, y: loss(model(x), shifted[id(y)]), parts=2, labels=labels)

    assert explain("labels", case) == "the labels are shifted by one sample: each has that before it"


@pytest.mark.parametrize(
    ("compute", "start", "words"),
    [
        (in_eval_mode, dropping, "eval mode"),
        (lambda m, loss, x, y: loss(m.train()(x), y), lambda: dropping().eval(), "train mode"),
    ],
)
def test_another_mode_is_recognised(compute, start, words):
    assert words in explain("labels", make_loss_case(compute, model=start()))


@pytest.mark.parametrize(
    ("rows", "words"), [(slice(None, -1), "the last sample"), (slice(1, None), "the first sample")]
)
def test_a_sample_that_is_left_out_is_recognised(rows, words):
    case = make_loss_case(lambda model, loss, x, y: loss(model(x[rows]), y[rows]))

    assert explain("samples", case) == f"{words} of each micro-batch is left out"


@pytest.mark.parametrize(
    ("factor", "parts", "words"),
    [
        (6.0, 1, "6 times plain PyTorch's, which is the number of samples of a micro-batch"),
        (1 / 6, 1, "which is 1 / the number of samples"),
        (3.0, 3, "3 times plain PyTorch's, which is the number of micro-batches of a step"),
        (12.0, 2, "which is the number of samples of a step"),
        (0.5, 1, "the loss is 0.5 times"),
        (1.37, 2, "the loss is 1.37 times"),
    ],
)
def test_a_multiple_of_the_loss_is_told_with_what_it_stands_for(factor, parts, words):
    case = make_loss_case(lambda model, loss, x, y: factor * loss(model(x), y), parts=parts)

    assert words in explain("loss", case)


def test_the_number_of_elements_of_the_labels_is_told():
    loss = nn.MSELoss()

    case = make_loss_case(
        lambda model, _loss, x, y: nn.MSELoss(reduction="sum")(model(x), y), loss=loss, labels=[torch.randn(6, 4)]
    )

    assert "24 times plain PyTorch's, which is the number of elements of the labels" in explain("loss", case)


def test_of_one_loss_any_other_is_a_multiple_which_explains_nothing():
    case = make_loss_case(lambda model, loss, x, y: 1.2345678 * loss(model(x), y))

    assert explain("loss", case) == ""
    assert list(iter_causes("labels", case)) == []


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "replicas", "words"),
    [
        ((4, 4, 4, 4), 1, "4 times plain PyTorch's, which is the number of micro-batches"),
        ((2, 2, 2, 2), 2, "2 times plain PyTorch's, which is the number of replicas"),
        ((3, 3, 3, 3, 3, 3), 2, "3 times plain PyTorch's, which is the number of accumulated parts"),
        ((0.5, 0.5), 2, "1 / the number"),
        ((1, 0, 1, 0), 2, "replica 1 are lost"),
        ((1, 1, 1, 0), 1, "micro-batch 4 of 4 are lost"),
        ((1, 2, 1, 1), 1, "micro-batch 2 of 4 2 times"),
        ((0, 0), 1, "every gradient is zero"),
        ((1.25, 1.25), 1, "1.25 times"),
    ],
)
def test_a_changed_sum_is_explained(weights, replicas, words):
    assert words in explain("gradient", make_gradient_case(weights, replicas=replicas))


def test_a_loss_scaling_that_stays_is_recognised():
    case = make_gradient_case((128.0,), loss_scaling=128.0)

    assert "which is the loss scaling" in explain("gradient", case)


def test_clipped_gradients_are_recognised_by_their_norm():
    case = make_gradient_case((1.0, 1.0))
    norm = case.sides[0].norm()
    clipped = {name: (value / norm * 0.5).float() for name, value in case.plain.items()}

    assert "norm is 0.5" in explain("gradient", Case(case.plain, clipped, case.names, case.evidence))


def test_gradients_of_something_else_are_left_open():
    case = make_gradient_case((1.0, 1.0))
    other = {name: torch.arange(12.0).reshape(4, 3) for name in case.names}

    assert explain("gradient", Case(case.plain, other, case.names, case.evidence)) == ""


def test_a_ratio_that_one_parameter_does_not_have_is_no_cause():
    case = make_gradient_case((2.0, 2.0))
    ported = {**case.ported, "other": 2.2 * case.plain["other"]}

    assert explain("gradient", Case(case.plain, ported, case.names, case.evidence)) == ""


@pytest.mark.parametrize(
    ("ratio", "is_cause"),
    [(2.0, True), (1.9, True), (1.0, False)],
)
def test_a_count_that_other_steps_deny_is_chance(ratio, is_cause):
    kept = {step: {"weight": ratio, "other": ratio} for step in (1, 2, 3)}

    words = explain("gradient", make_gradient_case((2.0, 2.0), ratios=kept))

    assert "2 times plain PyTorch's" in words
    assert ("the number of micro-batches" in words) is is_cause
    assert words.endswith("in this step") is not is_cause


# -- updates -----------------------------------------------------------------------------------------------------------


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1)


def damped(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, dampening=0.5)


def nesterov(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def step_with(**settings):
    def change(_model, optimizer):
        optimizer.param_groups[0].update(settings)
        optimizer.step()

    return change


def late_momentum(model, optimizer):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.01 * optimizer.state[parameter]["momentum_buffer"])


def lost_state(_model, optimizer):
    optimizer.state.clear()
    optimizer.step()


def shifted_count(shift):
    def change(_model, optimizer):
        for state in optimizer.state.values():
            state["step"] += shift
        optimizer.step()

    return change


def more_momentum(model, optimizer):
    momentum = {p: own["momentum_buffer"].clone() for p, own in optimizer.state.items()}
    optimizer.step()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.01 * 0.03 * momentum[parameter])


def more_gradient(model, optimizer):
    optimizer.step()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.01 * 0.4 * parameter.grad)


@pytest.mark.parametrize(
    ("make_optimizer", "change", "words"),
    [
        (sgd, step_with(momentum=0.8), "with momentum 0.8"),
        (nesterov, step_with(momentum=0.0, nesterov=False), "without momentum"),
        (sgd, step_with(weight_decay=0.0), "without weight decay"),
        (sgd, step_with(weight_decay=0.01), "with weight decay 0.01"),
        (sgd, step_with(nesterov=True), "with Nesterov's momentum"),
        (nesterov, step_with(nesterov=False), "without Nesterov's momentum"),
        (damped, step_with(dampening=0.0), "without dampening"),
        (sgd, step_with(lr=0.02), "2 times plain PyTorch's"),
        (sgd, step_with(lr=-0.01), "the other way"),
        (sgd, step_with(weight_decay=0.37), "a weight decay of 0.27 more"),
        (sgd, late_momentum, "off by one step"),
        (sgd, lost_state, "lost"),
        (sgd, more_momentum, "the momentum of every parameter counts by 0.03 more"),
        (sgd, more_gradient, "the gradient of every parameter counts by 0.4 more"),
        (sgd, lambda _model, _optimizer: None, "does not update every parameter"),
        (adam, shifted_count(1), "count of steps is one ahead"),
        (adam, shifted_count(-1), "count of steps is one behind"),
        (adam, step_with(betas=(0.8, 0.999)), "betas[0] 0.8"),
        (adam, step_with(betas=(0.9, 0.99)), "betas[1] 0.99"),
        (adam, step_with(eps=1e-2), "with eps 0.01"),
    ],
)
def test_a_changed_update_is_explained(make_optimizer, change, words):
    assert words in explain("update", make_update_case(make_optimizer, change))


def test_a_first_step_without_an_update_has_the_momentum_of_the_step_before():
    case = make_update_case(sgd, lambda _model, _optimizer: None, steps=1)

    assert "in a first step the momentum of the step before is zero" in explain("update", case)


def test_an_update_that_plain_pytorch_does_not_make_is_told():
    case = make_update_case(lambda parameters: torch.optim.SGD(parameters, lr=0.0), step_with(lr=0.1))

    assert "plain PyTorch does not update every parameter" in explain("update", case)


def test_a_decay_of_biases_alone_is_told_as_such():
    def change(model, optimizer):
        before = model.bias.detach().clone()
        optimizer.step()
        with torch.no_grad():
            model.bias.sub_(0.01 * 0.37 * before)

    words = explain("update", make_update_case(sgd, change, names=["bias"]))

    assert words == "a weight decay of 0.37 more than in plain PyTorch acts on `bias`, biases and norms alone"


@pytest.mark.parametrize(
    ("kept", "is_cause"),
    [
        ({2: {"weight": 2.0, "bias": 2.1}, 3: {"weight": 1.8, "bias": 2.0}}, True),
        ({2: {"weight": 2.0, "bias": 2.0}}, False),
        ({2: {"weight": 2.0, "bias": 1.0}, 3: {"weight": 2.0, "bias": 1.0}}, False),
        ({2: {"weight": 1.0, "bias": 1.0}, 3: {"weight": 1.0, "bias": 1.0}}, False),
        (None, False),
    ],
)
def test_another_learning_rate_is_named_only_where_all_parameters_have_it_in_several_steps(kept, is_cause):
    words = explain("update", make_update_case(sgd, step_with(lr=0.02), ratios=kept))

    assert "2 times plain PyTorch's" in words
    assert ("as another learning rate would make it" in words) is is_cause


def test_an_update_that_nothing_explains_is_left_open():
    def change(model, _optimizer):
        with torch.no_grad():
            model.weight.add_(torch.randn(4, 5))
            model.bias.add_(torch.randn(4))

    assert explain("update", make_update_case(sgd, change)) == ""


# -- buffers -----------------------------------------------------------------------------------------------------------


def make_buffer_case(move, moved, *, name="running_mean"):
    """Return the case of a statistic that `move` changes in plain PyTorch, and `moved` in the port."""
    plain = make_training(nn.BatchNorm1d(3))
    step = StepTrace(before=StateParts(buffers={name: torch.zeros(3)}))
    sides = [{name: torch.tensor(values, dtype=torch.float64)} for values in (move, moved)]
    return Case(sides[0], sides[1], [name], make_evidence(plain, step=step), path=ROOT)


@pytest.mark.parametrize(
    ("move", "moved", "words"),
    [
        ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], "`running_mean` is stale in the port"),
        ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], "`running_mean` is written in the port alone"),
        ([1.0, 2.0, 3.0], [1.9, 3.8, 5.7], "`running_mean` is updated twice"),
        ([1.0, 2.0, 3.0], [0.5, 1.0, 1.5], "0.5 times as far as in plain PyTorch, as with a momentum of 0.05"),
        ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0], "takes in statistics of other values"),
    ],
)
def test_statistics_that_move_otherwise_are_explained(move, moved, words):
    assert words in explain("buffer", make_buffer_case(move, moved))


WIDE = 2**31 + 5


@pytest.mark.parametrize(
    ("plain", "ported", "words"),
    [
        ([3, WIDE], [3, WIDE - 2**32], f"`ids` is {WIDE}, which 32 bits do not hold: a device has no more"),
        ([3, 7], [3, 6], "`ids` is 6 in the port and 7 in plain PyTorch, and no whole number is rounded"),
        ([3, WIDE], [3, 17], f"`ids` is 17 in the port and {WIDE} in plain PyTorch"),
    ],
)
def test_whole_numbers_have_words_of_their_own(plain, ported, words):
    assert words in explain("whole", Case({"ids": torch.tensor(plain)}, {"ids": torch.tensor(ported)}, ["ids"]))


@pytest.mark.parametrize("ported", [{"ids": torch.tensor([1.0])}, {"ids": torch.tensor([1.0, 2.0])}, {}])
def test_of_other_numbers_whole_ones_are_not_spoken_of(ported):
    assert explain("whole", Case({"ids": torch.tensor([1.5])}, ported, ["ids"])) == ""


# -- rates -------------------------------------------------------------------------------------------------------------

STEPPED = [0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 1e-4, 1e-4]


@pytest.mark.parametrize(
    ("plain", "ported", "words"),
    [
        (STEPPED, [0.1] * 8, "the schedule is ignored"),
        ([0.1] * 8, STEPPED, "the port has a schedule, plain PyTorch has none"),
        (STEPPED, [2 * rate for rate in STEPPED], "every rate is 2 times plain PyTorch's"),
        (STEPPED, [STEPPED[0], *STEPPED[:-1]], "one step behind"),
        (STEPPED[:-2], [STEPPED[0], STEPPED[0], *STEPPED[:4]], "2 steps behind"),
        (STEPPED, [*STEPPED[1:], 1e-5], "one step ahead"),
        (STEPPED, [*STEPPED[::2], 1e-5, 1e-6, 1e-7, 1e-8], "stepped 2 times in a step"),
        (STEPPED, [rate for rate in STEPPED[:4] for _ in range(2)], "stepped only once in 2 steps"),
        (
            STEPPED,
            [0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125],
            "multiplies it by 0.5, plain PyTorch's by 0.1",
        ),
        ([0.1, 0.2, 0.3], [0.1, 0.1, 0.2], "one step behind"),
        ([0.1, 0.2, 0.2], [0.1, 0.1, 0.3], "another schedule"),
    ],
)
def test_other_rates_are_explained(plain, ported, words):
    sides = [{"rate": torch.tensor(rates, dtype=torch.float64)} for rates in (plain, ported)]

    assert words in explain("schedule", Case(sides[0], sides[1], ["rate"], tolerance=1e-5))


def test_of_a_single_rate_no_ratio_is_said():
    sides = [{"rate": torch.tensor([rate], dtype=torch.float64)} for rate in (0.1, 0.2)]

    assert explain("schedule", Case(sides[0], sides[1], ["rate"], tolerance=1e-5)) == "the port has another schedule"


# -- operators ---------------------------------------------------------------------------------------------------------


def record(name, *args, results=(), **kwargs):
    return ValueRecord(name, Origin(ROOT), args, kwargs, tuple(results))


def make_operator_case(plain, ported, apart=None, before=({}, {})):
    sides = [StateParts(parameters=tensors) for tensors in before]
    evidence = make_evidence(step=StepTrace(before=sides[0]), before=sides[1])
    pair = [{"op": side.results[0]} for side in (plain, ported) if side and side.results]
    names = ["op"] if len(pair) == 2 else []
    fault = ValueFault(plain, ported, apart or Apart(1.0, 1.0, 0.1, 1.3))
    return Case(*(pair if names else ({}, {})), names, evidence, path=ROOT, fault=fault)


FORM = TensorForm((2, 3), torch.float32)


@pytest.mark.parametrize(
    ("plain", "ported", "words"),
    [
        (None, record("aten.mul", FORM, 2.0), "the port runs `aten.mul` with 2.0 where plain PyTorch runs nothing"),
        (record("aten.relu", FORM), None, "the port runs nothing where plain PyTorch runs `aten.relu`"),
        (record("aten.relu", FORM), record("aten.gelu", FORM), "runs `aten.gelu` where plain PyTorch runs `aten.relu`"),
        (record("aten.add", FORM, 1), record("aten.add", FORM, 2), "`aten.add` gets `2` in the port and `1`"),
        (
            record("aten.sum", FORM),
            record("aten.sum", TensorForm((3, 2), torch.float32)),
            "`aten.sum` gets a tensor of [3, 2] in the port and a tensor of [2, 3]",
        ),
        (
            record("aten.mul", results=[torch.tensor([WIDE])]),
            record("aten.mul", results=[torch.tensor([WIDE - 2**32])]),
            f"`aten.mul` makes {WIDE}, which 32 bits do not hold",
        ),
    ],
)
def test_what_runs_otherwise_is_told(plain, ported, words):
    assert words in explain("structure", make_operator_case(plain, ported))


def test_a_type_alone_is_no_other_argument():
    half = TensorForm((2, 3), torch.float16)

    case = make_operator_case(record("aten.to", FORM, torch.float32), record("aten.to", half, torch.float16))

    assert explain("structure", case) == ""


def test_weights_that_were_others_before_are_named():
    weights = {"weight": torch.zeros(2)}, {"weight": torch.ones(2)}
    same = record("aten.mm", FORM)

    assert explain("operator", make_operator_case(same, same, before=weights)).startswith("`weight` had another value")


@pytest.mark.parametrize(
    ("name", "apart", "words"),
    [
        ("aten.bernoulli_", None, "other random numbers"),
        ("aten.rand_like", None, "other random numbers"),
        ("aten.mm", Apart(0.3, 1.0, 0.1, 1.3), "`aten.mm` gives other values: 1.3 times plain PyTorch's"),
        ("aten.mm", Apart(2.0, 1.0, 0.1, 1.3), "a distance of 2.0e+00 for values of 1.0e+00"),
    ],
)
def test_where_everything_agrees_the_numbers_are_told(name, apart, words):
    same = record(name, FORM)

    assert words in explain("operator", make_operator_case(same, same, apart))


def test_a_gradient_is_told_from_the_operator_on_where_it_differs():
    same = record("aten.mm", FORM)

    words = explain("derivative", make_operator_case(same, same, Apart(0.3, 1.0, 0.1, 1.3)))

    assert words == "from `aten.mm` of `Linear` on the gradients are others: 1.3 times plain PyTorch's"


# -- states ------------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self, is_tied):
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
        if is_tied:
            self.last.weight = self.first.weight


@pytest.mark.parametrize(
    ("plain", "ported", "words"),
    [
        ({"weight": 1.0}, {"weight": 2.0}, "`weight` has another value in the port before the first step"),
        ({"weight": 1.0}, {}, "only plain PyTorch has `weight`"),
        ({}, {"weight": 1.0}, "only the port has `weight`"),
    ],
)
def test_another_start_is_told(plain, ported, words):
    sides = [{name: torch.tensor([value]) for name, value in side.items()} for side in (plain, ported)]

    assert explain("start", Case(sides[0], sides[1], ["weight"], make_evidence())).startswith(words)


def test_weights_that_are_tied_on_one_side_alone_are_told():
    models = Tied(True), Tied(False)
    evidence = make_evidence(make_training(models[0]), model=models[1])
    case = Case(models[0].state_dict(), models[1].state_dict(), ["last.weight"], evidence)

    assert explain("start", case).startswith("`last.weight` is tied to `first.weight` in plain PyTorch")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["norm.running_mean", "norm.running_var"], "running statistics are saved or loaded wrongly"),
        (["exp_avg of norm.weight"], "the optimizer's state is not in the file, or is not loaded: `exp_avg of"),
        (["norm.weight"], "`norm.weight` is another after it was saved and loaded"),
    ],
)
def test_what_a_checkpoint_has_otherwise_is_told(names, words):
    assert explain("checkpoint", Case(names=names)).startswith(words)


def test_every_phase_has_a_row_and_words_without_a_name_of_their_own():
    assert all(rows for rows in CAUSES.values())
    assert all("{}" not in words for rows in CAUSES.values() for words in rows)
