"""Runs of the plain side: what they are, in which order, and what a proof says that is stopped between them."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import PlainTraining, PortOptions
from porting.verify import Verdict
from porting.verify.calls import Calls
from porting.verify.half_rounding import HalfRule
from porting.verify.plain_side import PlainSide, choose_comparison
from porting.verify.plain_training import Grouping
from porting.verify.runs import Runs

NUM_STEPS = 6


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return PlainTraining(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)


def make_side(training, *, precision="float32", tell=lambda stage, num_calls: None):
    options = PortOptions(precision=precision, output_mode="all")
    rule = None if precision == "float32" else HalfRule(precision)
    comparison = choose_comparison(training, (batch(), {}), options, seed=0)
    return PlainSide(Runs(0.0), comparison, rule, options, seed=0, stream=None, tell=tell)


def prove(training=None, *, stop_before=None, ported=None, **more):
    """Verify; the user stops the proof before the stage whose words are `stop_before`."""
    stages = []

    def tell(stage):
        stages.append(stage)
        if stop_before is not None and stop_before in stage:
            raise KeyboardInterrupt

    training = training or build()
    certificate = porting.verify(
        training, batches=batch(), steps=NUM_STEPS, ported=ported, tell=tell, device="sim", **more
    )
    return certificate, stages


def port_with(**settings):
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), **{"lr": 0.1, **settings})
        options = PortOptions(keep_gradients=True)
        return porting.to_ipu(model, F.cross_entropy, optimizer=optimizer, options=options, device="sim")

    return make


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "count"), [("float32", 3), ("mixed", 3)])
def test_runs_differ_from_the_plain_one_by_rounding(precision, count):
    side = make_side(build(), precision=precision)
    calls = Calls([(batch(), {})] * NUM_STEPS)

    done = side.begin(calls)
    num_first = len(side.runs.others)
    side.go_on(done)

    assert len(done) == NUM_STEPS
    assert num_first == 1
    assert len(side.runs.others) == count
    assert side.runs.missing == []
    for run in side.runs.others:
        assert run.losses[1] == pytest.approx(side.runs.plain.losses[1], rel=1e-2)
        assert run.losses != side.runs.plain.losses


def test_the_reference_has_more_digits():
    side = make_side(build())
    side.go_on(side.begin(Calls([(batch(), {})] * 2)))

    assert side.runs.reference is not None
    assert side.runs.reference in side.runs.others


def test_the_reference_of_half_precision_is_single_precision():
    side = make_side(build(), precision="mixed")
    side.go_on(side.begin(Calls([(batch(), {})] * 2)))

    assert side.runs.reference is not None
    assert side.runs.reference not in side.runs.others


def test_a_run_that_computes_something_else_is_left_out():
    class Wide(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1.0 if self.weight.dtype is torch.float32 else 3.0)

    torch.manual_seed(0)
    model = Wide(6, 3)
    training = PlainTraining(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    side = make_side(training)

    side.go_on(side.begin(Calls([(batch(), {})] * 2)))

    assert side.runs.reference is None
    assert "computes something else in that type" in side.runs.notes[0]


def test_a_training_that_is_another_one_each_time_shows_nothing():
    counter = iter(range(10_000))

    def compute_loss(model, x, y):
        return F.cross_entropy(model(x), y) * (1.0 + next(counter))

    training = build()
    training = PlainTraining(training.model, None, training.optimizer, compute_loss=compute_loss)
    side = make_side(training)

    side.begin(Calls([(batch(), {})] * 2))

    assert "another one each time" in side.runs.missing[0]


def test_without_a_port_nothing_is_judged():
    side = make_side(build())
    side.begin(Calls([(batch(), {})]))

    assert side.runs.judge().measured == {}


# -- a proof that is stopped -------------------------------------------------------------------------------------------


def test_stopped_after_the_ports_run_all_steps_are_compared():
    certificate, stages = prove(stop_before="float64")

    assert certificate.verdict is Verdict.INCOMPLETE
    assert certificate.num_steps == NUM_STEPS
    assert f"{NUM_STEPS} steps were compared" in certificate.reason
    assert [one.kind for one in certificate.kinds if one.verdict is Verdict.FAIL] == []
    assert "the port" in " ".join(stages[:4])


@pytest.mark.parametrize("stage", ["plain PyTorch", "another order", "the port"])
def test_stopped_before_the_ports_run_nothing_is_compared(stage):
    certificate, _stages = prove(stop_before=stage)

    assert certificate.verdict is Verdict.INCOMPLETE
    assert certificate.num_steps == 0
    assert "interrupted" in certificate.reason


def test_stopped_before_the_evaluation_the_certificate_does_not_claim_it():
    certificate, _stages = prove(stop_before="evaluation")

    kinds = {kind.kind: kind.verdict for kind in certificate.kinds}
    assert certificate.verdict is Verdict.INCOMPLETE
    assert kinds["loss curve"] is Verdict.PASS
    assert kinds["evaluation"] is kinds["resuming"] is Verdict.NOT_COMPARED


@pytest.mark.parametrize("function", ["compare_samples", "find_first"])
def test_stopped_while_it_judges_all_steps_are_compared(monkeypatch, function):
    module = "porting.verify.verify" if function == "compare_samples" else "porting.verify.plain_side"
    own, calls = getattr(importlib.import_module(module), function), []

    def stop_once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return own(*args)

    monkeypatch.setattr(f"{module}.{function}", stop_once)

    certificate, _stages = prove()

    assert certificate.verdict is Verdict.INCOMPLETE
    assert certificate.reason == f"it was interrupted; {NUM_STEPS} steps were compared until then"
    assert certificate.num_steps == NUM_STEPS
    assert len(set(certificate.notes)) == len(certificate.notes)


def test_stopped_a_fault_is_still_a_fault():
    certificate, _stages = prove(stop_before="float64", ported=port_with(lr=0.2))

    assert certificate.verdict is Verdict.FAIL


def test_a_stage_says_how_long_the_rest_takes(monkeypatch):
    clock = iter(float(10 * number) for number in range(1000))
    monkeypatch.setattr("porting.verify.verify.time.monotonic", lambda: next(clock))

    _certificate, stages = prove()

    assert "left" not in stages[0]
    assert all("about " in stage and " s left;" in stage for stage in stages[1:])


def test_nothing_of_the_users_is_left_behind_by_a_proof_that_was_stopped():
    training = build()
    stream, threads = torch.get_rng_state(), torch.get_num_threads()

    prove(training, stop_before="float64")

    assert torch.equal(stream, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert all(parameter.grad is None for parameter in training.model.parameters())


class WithOwnLoss(nn.Module):
    """Returns its loss beside its output, as language models do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x, y):
        output = self.linear(x)
        return output, F.cross_entropy(output, y)


def test_a_loss_among_the_outputs_is_compared_micro_batch_by_micro_batch():
    model = WithOwnLoss()
    training = PlainTraining(model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    options = PortOptions(micro_batch=2, accumulation=4, output_mode="all")

    comparison = choose_comparison(training, (batch(), {}), options, seed=0)

    assert not comparison.grouping.is_large
    assert "something else than a row for each sample" in comparison.text


# -- the loop that is compared -----------------------------------------------------------------------------------------

OPTIONS = PortOptions(micro_batch=4, accumulation=2, output_mode="all")


def choose(model, *, options=OPTIONS, loss=F.cross_entropy, labels=None):
    torch.manual_seed(0)
    training = PlainTraining(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    labels = torch.randint(0, 3, (8,)) if labels is None else labels
    return choose_comparison(training, ((torch.randn(8, 6), labels), {}), options, seed=0)


def test_samples_on_their_own_are_one_large_batch():
    comparison = choose(nn.Linear(6, 3))

    assert comparison.grouping.is_large
    assert "one large batch a step, which 2 micro-batches stand for" in comparison.text


def test_batchnorm_looks_at_its_micro_batch():
    comparison = choose(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))

    assert not comparison.grouping.is_large
    assert "`1` (1 like it) takes its statistics from each micro-batch" in comparison.text


def test_a_mean_over_what_is_not_ignored_is_not_that_of_its_parts():
    def loss(output, label):
        return F.cross_entropy(output, label, ignore_index=0)

    comparison = choose(nn.Linear(6, 3), loss=loss, labels=torch.tensor([0, 0, 0, 1, 2, 1, 2, 1]))

    assert not comparison.grouping.is_large


def test_a_sum_is_told_from_a_mean():
    comparison = choose(nn.Linear(6, 3), loss=nn.CrossEntropyLoss(reduction="sum"))

    assert comparison.training.accumulated == "sum"
    assert comparison.grouping.is_large


def test_random_numbers_are_drawn_for_each_micro_batch():
    comparison = choose(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)))

    assert comparison.draws
    assert not comparison.grouping.is_large


@pytest.mark.parametrize("change", [{"precision": "mixed"}, {"output_mode": "final"}])
def test_micro_batches_stay_where_each_has_to_be_seen(change):
    assert not choose(nn.Linear(6, 3), options=OPTIONS.replace(**change)).grouping.is_large


def test_one_micro_batch_is_the_batch():
    comparison = choose(nn.Linear(6, 3), options=PortOptions())

    assert comparison.text == "the same batch a step"


def test_replicas_have_micro_batches_of_their_own():
    grouping = Grouping.of(PortOptions(micro_batch=1, accumulation=2, replicas=2, device_iterations=3))

    assert (grouping.steps_per_call, grouping.micro_batches_per_step, grouping.replicas) == (3, 4, 2)


def test_nothing_of_the_training_changes():
    model = nn.Linear(6, 3)
    before = model.weight.clone()
    stream = torch.get_rng_state()

    torch.set_rng_state(stream)
    choose(model)

    assert torch.equal(model.weight, before)
    assert model.weight.grad is None
