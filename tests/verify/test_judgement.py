"""Records of a port are judged quantity by quantity; in half precision faults show below the noise of one number."""

from __future__ import annotations

import copy
import functools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting import PlainTraining
from porting.verify.calls import Calls
from porting.verify.certificate import Verdict
from porting.verify.half_rounding import HalfRule
from porting.verify.judgement import describe_form, gradient_errors, judge_runs, list_outside
from porting.verify.noise_band import NoiseBand
from porting.verify.plain_runs import Perturbation, run_plain
from porting.verify.plain_training import Grouping
from porting.verify.records import Record

SINGLE = torch.finfo(torch.float32).eps
GRADIENT = torch.randn(50, generator=torch.Generator().manual_seed(0))


def record(losses=(2.0, 1.5), rates=(0.1, 0.1), **kinds):
    """Make a record whose sketches are those of the first step."""
    made = Record(
        {step: [loss] for step, loss in enumerate(losses, 1)}, {step: [rate] for step, rate in enumerate(rates, 1)}
    )
    for kind, tensors in kinds.items():
        made.keep(kind, 1, tensors)
    return made


def judge(plain, ported, *, runs=None, **settings):
    return judge_runs(plain, ported, NoiseBand(plain, [plain] if runs is None else runs, SINGLE), **settings)


def list_names(judgement):
    return [(one.kind, one.name, one.step) for one in list_outside(judgement)]


def test_what_is_the_same_is_inside():
    plain = record(gradient={"weight": GRADIENT}, buffer={"mean": GRADIENT})

    judgement = judge(plain, record(gradient={"weight": GRADIENT}, buffer={"mean": GRADIENT}))

    assert list_names(judgement) == []
    assert {kind.kind: kind.num_compared for kind in judgement.list_verdicts() if kind.num_compared} == {
        "loss": 1,
        "loss curve": 1,
        "learning rate": 2,
        "gradient": 1,
        "buffer": 1,
    }


def test_a_kind_that_is_outside_is_named_with_its_first_and_its_worst():
    plain = record(losses=(2.0, 1.5, 1.2))

    verdicts = {kind.kind: kind for kind in judge(plain, record(losses=(2.0, 1.4, 0.2))).list_verdicts()}

    assert verdicts["loss"].verdict is Verdict.PASS
    assert verdicts["loss curve"].verdict is Verdict.FAIL
    assert (verdicts["loss curve"].first.step, verdicts["loss curve"].worst.step) == (2, 3)


@pytest.mark.parametrize(("plain", "ported"), [(1.0, math.nan), (math.inf, 1.0), (1.0, -math.inf)])
def test_a_loss_that_is_finite_on_one_side_alone_is_outside(plain, ported):
    assert list_names(judge(record((2.0, plain)), record((2.0, ported)))) == [("loss curve", "loss", 2)]


def test_the_proof_ends_where_no_loss_is_finite():
    judgement = judge(record((2.0, math.nan, 1.0)), record((2.0, math.inf, 7.0)))

    assert (judgement.lost, list_names(judgement)) == (2, [])


def test_it_ends_where_rounding_leads_anywhere():
    plain = record((2.0, 1.5, 1.4), (0.1, 0.1, 0.1))

    judgement = judge(plain, record((2.0, 1.5, 9.0), (0.1, 0.1, 9.0)), runs=[record((2.0, 1.5, 1.9))])

    assert (judgement.chaos, list_names(judgement)) == (3, [])


def test_a_sum_of_losses_is_made_a_mean():
    assert list_names(judge(record((8.0, 4.0)), record((2.0, 1.0)), loss_factor=4.0)) == []


def test_another_rate_is_outside():
    assert list_names(judge(record(), record(rates=(0.1, 0.1001)))) == [("learning rate", "group 0", 2)]


def test_the_same_rates_in_more_groups_are_the_same():
    plain, ported = record(), record()
    ported.rates[1], ported.rates[2] = [0.1, 0.1], [0.1, 0.2]

    assert list_names(judge(plain, ported)) == [("learning rate", "groups", 2)]


def test_another_setting_is_outside():
    plain, ported = record(), record()
    plain.settings[1], ported.settings[1] = {"weight": {"momentum": 0.9}}, {"weight": {"momentum": 0.8}}

    assert [one.kind for one in list_outside(judge(plain, ported))] == ["setting"]


@pytest.mark.parametrize("has", ["plain", "ported"])
def test_what_one_side_alone_has_is_outside_unless_it_is_zero(has):
    tensors = {"lost": GRADIENT, "zero": torch.zeros(3), "weight": GRADIENT}
    sides = {"plain": {"weight": GRADIENT}, "ported": {"weight": GRADIENT}, has: tensors}

    judgement = judge(record(gradient=sides["plain"]), record(gradient=sides["ported"]))

    assert list_names(judgement) == [("gradient", "lost", 1)]
    assert list_outside(judgement)[0].note.startswith("only ")


def test_a_kind_that_the_port_has_not_kept_is_not_compared():
    verdicts = {kind.kind: kind for kind in judge(record(gradient={"w": GRADIENT}), record()).list_verdicts()}

    assert verdicts["gradient"].verdict is Verdict.NOT_COMPARED


def test_elements_that_are_not_finite_are_counted_unless_rounding_decides_of_them():
    lost = GRADIENT.clone()
    lost[3] = math.nan
    plain, ported = record(gradient={"weight": GRADIENT}), record(gradient={"weight": lost})

    assert "1 elements are not finite in the port" in list_outside(judge(plain, ported))[0].note
    assert list_names(judge(plain, ported, runs=[ported])) == []


def test_the_forms_of_outputs_are_told():
    sketches = [record(output={"it": tensor}).sketches["output", 1]["it"] for tensor in (GRADIENT, GRADIENT > 0)]
    narrow = record(output={"it": GRADIENT[:10]}).sketches["output", 1]["it"]

    assert describe_form(sketches[0], sketches[0]) == ""
    assert describe_form(*sketches) == "true or false in the port, floating point in plain PyTorch"
    assert describe_form(sketches[0], narrow) == "shape [10] in the port, [50] in plain PyTorch"


def test_what_was_drawn_at_random_is_left_out():
    plain = record(gradient={"weight": GRADIENT})
    plain.keep("parameter", 0, {"weight": GRADIENT})
    judgement = judge(plain, plain)

    judgement.leave_out_drawn("drawn")

    kept = {kind.kind: (kind.num_compared, kind.note) for kind in judgement.list_verdicts()}
    assert kept["gradient"] == (0, "drawn")
    assert kept["parameter"][0] == 1


def test_the_errors_of_the_first_gradients_are_kept():
    plain = record(gradient={"weight": GRADIENT})

    errors = gradient_errors(judge(plain, record(gradient={"weight": GRADIENT + 1.0})))

    assert errors["weight"][:2] == pytest.approx((math.sqrt(50), float(GRADIENT.norm())))


# -- half precision ----------------------------------------------------------------------------------------------------

ACCUMULATION, NUM_STEPS = 4, 4
UNITS = {"mixed": 2.0**-10, "bfloat16": 2.0**-7}


class Drop:
    """A loss whose gradient is lost in some micro-batches of each step."""

    def __init__(self, *lost):
        self.lost, self.num_calls = lost, 0

    def __call__(self, output, label):
        self.num_calls += 1
        factor = 0.0 if (self.num_calls - 1) % ACCUMULATION in self.lost else 1.0
        return Larger.apply(F.cross_entropy(output, label), factor)


class Larger(torch.autograd.Function):
    """The identity, whose gradient is multiplied."""

    @staticmethod
    def forward(ctx, value, factor):
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


class Scaled(nn.Linear):
    """A layer whose gradients are 5 % too large."""

    def forward(self, x):
        return F.linear(x, Larger.apply(self.weight, 1.05), Larger.apply(self.bias, 1.05))


def larger(factor):
    return lambda output, label: Larger.apply(F.cross_entropy(output, label), factor)


def with_scaled_layer(model):
    model[1].__class__ = Scaled
    return model


def make(change=lambda model: model, *, loss=F.cross_entropy, optimizer=torch.optim.AdamW, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(24, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    )
    model = change(model)
    return PlainTraining(model, loss, optimizer(model.parameters(), **{"lr": 2e-3, **settings}))


def train(training, precision, *, seed=None):
    generator = torch.Generator().manual_seed(3)
    batches = [(torch.randn(16, 24, generator=generator), torch.arange(16) % 4) for _ in range(NUM_STEPS)]
    perturbation = Perturbation("rounded", rounding=seed, rule=HalfRule(precision))
    grouping = Grouping(steps_per_call=1, micro_batches_per_step=ACCUMULATION, replicas=1)
    made = run_plain(training, Calls([(batch, {}) for batch in batches]), grouping, seed=0, perturbation=perturbation)
    made.settings.clear()
    return made


@functools.lru_cache(maxsize=None)
def train_soundly(precision, optimizer):
    """Return a plain run, others that are rounded at random, and one in single precision."""
    runs = [train(make(optimizer=optimizer), precision, seed=seed) for seed in range(1, 7)]
    return train(make(optimizer=optimizer), precision), [*runs, train(make(optimizer=optimizer), "float32")]


def judge_half(training, precision, optimizer=torch.optim.AdamW):
    plain, runs = train_soundly(precision, optimizer)
    judgement = judge_runs(plain, train(training, precision, seed=9), NoiseBand(plain, runs, UNITS[precision]))
    return list_outside(judgement)


FAULTS = {
    "1 % too large": {"loss": larger(1.01)},
    "3 % too large": {"loss": larger(1.03)},
    "10 % too large": {"loss": larger(1.1)},
    "a scaling that is not undone": {"loss": larger(128.0)},
    "a micro-batch is lost": {"loss": Drop(1)},
    "the last micro-batch alone": {"loss": Drop(0, 1, 2)},
    "a layer's are 5 % too large": {"change": with_scaled_layer},
    "a decay of 0.1": {"weight_decay": 0.1},
    "another epsilon": {"eps": 1e-5},
    "another first beta": {"betas": (0.85, 0.999)},
    "another second beta": {"betas": (0.9, 0.99)},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("precision", list(UNITS))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_does_not_hide_behind_half_precision(fault, precision):
    assert judge_half(make(**FAULTS[fault]), precision)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("precision", list(UNITS))
def test_another_run_that_is_rounded_at_random_is_inside(precision, optimizer):
    assert judge_half(make(optimizer=optimizer), precision, optimizer) == []


def test_what_all_elements_are_off_by_has_a_narrower_band():
    plain, runs = train_soundly("bfloat16", torch.optim.AdamW)
    band = NoiseBand(plain, runs, UNITS["bfloat16"])
    faulty = copy.deepcopy(plain)
    for sketch in faulty.sketches["gradient", 1].values():
        sketch.values.mul_(1.05)

    found = [one for one in judge_runs(plain, faulty, band).measured["gradient"] if one.step == 1]

    assert all(one.band < band.find_band("gradient", 1, one.name) for one in found if one.name.endswith("weight"))


@pytest.mark.parametrize("count", [7, 2**31 - 3])
def test_a_count_that_is_one_off_is_outside(count):
    def keep(value):
        record = Record(losses={1: [1.0]})
        record.keep("buffer", 1, {"count": torch.tensor(value)})
        return record

    plain = keep(count)
    band = NoiseBand(plain, [keep(count)], 2.0**-23)

    found = {value: judge_runs(plain, keep(value), band).measured["buffer"][0] for value in (count, count - 1)}

    assert found[count].is_inside
    assert not found[count - 1].is_inside
