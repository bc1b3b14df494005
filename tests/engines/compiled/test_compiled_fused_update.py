"""Programs that stop at the gradients: torch's fused kernels end the step, and all is as replay leaves it."""

from __future__ import annotations

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting.engines.calls.executable import Choice
from porting.engines.compiled import step_program

OPTIMIZERS = {
    "sgd": ("SGD2", {}),
    "sgd with everything": ("SGD2", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "dampening": 0.2}),
    "adam": ("ADAM", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "adamw": ("ADAMW", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "clipped and scaled": ("ADAM", {"learning_rate": 0.01, "max_grad_norm": 0.1, "loss_scaling": 4.0}),
}
FUSED = Choice("aot", fused_update=True)

# each example captures and traces a model
few_examples = hypothesis.settings(max_examples=8, deadline=None)
counts = st.integers(1, 4)


class Function(nn.Module):
    """`forward` is `function(weight, bias, x)`; the weight has shape (2, 3), the bias (3,)."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]]))
        self.bias = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x):
        return self.function(self.weight, self.bias, x)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


def convolutions():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(18, 4)
    )


def batch(model, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (rows,), generator=generator)
    return torch.randn(rows, *((1, 5, 5) if len(model) == 6 else (3,)), generator=generator), labels


@pytest.fixture(scope="module")
def fused(twins):
    """Give a function that makes twins of a classifier; the weights of the second are updated by fused kernels."""

    def fused(model, settings, *, rows=4, **arguments):
        arguments.setdefault("choice", FUSED)
        return twins(model, *batch(model, rows), loss=F.cross_entropy, settings=settings, **arguments)

    return fused


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [mlp, convolutions])
@pytest.mark.parametrize("kind", ["SGD2", "ADAM"])
def test_losses_stay_equal_over_twenty_steps(fused, settings, make, kind):
    model = make()
    pair = fused(model, settings(kind, learning_rate=0.01))

    for seed in range(20):
        expected, found = (results[-1] for results in pair.call(*batch(model, 4, seed)))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("kind", "values"), OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_every_optimizer_makes_the_same_steps(fused, settings, kind, values):
    model = mlp()
    pair = fused(model, settings(kind, **values), iterations=3)

    for seed in range(2):
        pair.assert_same(*batch(model, 12, seed))
    assert pair.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["final", "all", "sum", "every_n"])
@few_examples
@given(iterations=counts, accumulation=counts, replicas=counts, period=counts, steps=counts, at_once=counts)
def test_any_plan_gives_the_same_results(
    fused, settings, mode, iterations, accumulation, replicas, period, steps, at_once
):
    model = mlp()
    pair = fused(
        model,
        settings("SGD2", momentum=0.9),
        rows=2,
        choice=Choice(steps_per_run=steps, micro_batches_at_once=at_once, fused_update=True),
        iterations=iterations,
        accumulation=accumulation,
        replicas=replicas,
        output_mode=mode,
        output_period=period,
    )

    for seed in range(2):
        pair.assert_same(*batch(model, 2 * pair.plan.num_slices, seed))
    assert pair.findings == []


@pytest.mark.parametrize("make", [mlp, convolutions])
def test_the_gradients_of_many_micro_batches_add_up_in_accumulators(fused, settings, make, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 20)
    model = make()
    pair = fused(
        model,
        settings("ADAM", eps=1e-2, max_grad_norm=0.1),
        rows=2,
        choice=Choice(micro_batches_at_once=3, fused_update=True),
        iterations=2,
        accumulation=3,
        replicas=2,
    )

    for seed in range(2):
        pair.assert_same(*batch(model, 24, seed))
    assert list(pair.programs.by_role) == ["accumulate"]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_half_precision_weights_are_updated_in_single_precision(fused, settings, accumulation, twins):
    model = mlp().half()
    x, y = batch(model, 4)
    optimizer = settings("ADAM", eps=1e-3, first_order_type=torch.float16, loss_scaling=128.0)
    pair = twins(model, x.half(), y, loss=F.cross_entropy, settings=optimizer, choice=FUSED, accumulation=accumulation)

    x, y = batch(model, 4 * accumulation)
    pair.assert_same(x.half(), y, tolerance=2e-3)


# -- gradients ---------------------------------------------------------------------------------------------------------

# what clipping and loss scaling do to gradients in place must reach each of them once
SHARED = {
    "the same memory for all elements": lambda weight, bias, x: (weight.sum() + bias.sum()) * x.sum(),
    "the memory of an input": lambda weight, bias, x: ((weight[:1] + bias) * x[:1] + weight[1:] * bias).sum(),
    "the memory of another gradient": lambda weight, bias, x: ((weight + weight.new_zeros(2, 3)) * x[:2] + bias).sum(),
    "another order in memory": lambda weight, bias, x: (weight.t() * x[:2].t()).sum() + (bias * bias).sum(),
}


@pytest.mark.parametrize("function", SHARED.values(), ids=SHARED.keys())
@pytest.mark.parametrize("bound", [0.1, float("inf")])
def test_gradients_have_memory_of_their_own(twins, settings, function, bound):
    inputs = (torch.tensor([[1.0, 2.0, 3.0], [4.0, -5.0, 6.0]]), torch.zeros(2))
    optimizer = settings("SGD2", momentum=0.9, loss_scaling=8.0, max_grad_norm=bound)
    pair = twins(Function(function), *inputs, loss=lambda out, _label: out, settings=optimizer, choice=FUSED)

    for _call in range(2):
        pair.assert_same(*inputs)


def test_gradients_come_in_the_memory_format_of_their_weights(fused, settings):
    model = convolutions()
    pair = fused(model.to(memory_format=torch.channels_last), settings("ADAM", learning_rate=0.01))
    program, runner = pair.programs.by_role["gradients"], pair.compiled._runners["gradients"]
    returned = []

    def remember(tensors):
        returned[:] = runner(tensors)[-len(pair.layout.trained) :]
        return runner(tensors)

    pair.compiled._runners = {"gradients": remember}
    pair.call(*batch(model, 4))

    weights = [pair.states[1].parameters[part] for part in pair.layout.trained]
    assert [gradient.stride() for gradient in returned] == [weight.stride() for weight in weights]
    assert program.num_results == pair.layout.num_results + len(weights)


def test_a_gradient_in_another_order_is_converted(fused, settings):
    model = mlp()
    pair = fused(model, settings("ADAM"))
    runner = pair.compiled._runners["gradients"]
    pair.compiled._runners = {
        "gradients": lambda tensors: [t.t().contiguous().t() if t.dim() == 2 else t for t in runner(tensors)]
    }

    pair.assert_same(*batch(model, 4))


# -- what changes between calls ----------------------------------------------------------------------------------------


def test_numbers_change_between_calls(fused, settings):
    model = mlp()
    pair = fused(model, settings("ADAM", weight_decay=0.1))

    for call, rate in enumerate([0.1, 0.01, 0.02]):
        changed = settings("ADAM", weight_decay=0.1 * rate, learning_rate=rate, beta1=0.5 + rate, loss_scaling=2.0)
        pair.assert_same(*batch(model, 4, call), settings=changed)
    assert pair.findings == []


def test_another_optimizer_is_replayed_and_reported_once(fused, settings):
    model = mlp()
    pair = fused(model, settings())

    for seed in range(2):
        pair.assert_same(*batch(model, 4, seed), settings=settings("ADAM"))

    assert [finding.code for finding in pair.findings] == ["E008"]


def test_each_parameter_counts_its_own_updates(fused, settings):
    model = mlp()
    pair = fused(model, settings("ADAM"))
    pair.assert_same(*batch(model, 4))
    for state in pair.states:
        state.slots["0.bias"]["Step"].fill_(5.0)

    pair.assert_same(*batch(model, 4))

    assert pair.findings == []


def test_it_takes_turns_with_a_whole_step_on_one_device(fused, settings):
    model = mlp()
    pair = fused(model, settings("ADAM"))
    whole = fused(model, settings("ADAM"), choice=Choice("aot"))
    whole.states = pair.states

    for seed in range(2):
        pair.assert_same(*batch(model, 4, seed))
        whole.assert_same(*batch(model, 4, seed))


# -- faults ------------------------------------------------------------------------------------------------------------


class FailsInSecondRun:
    def __init__(self, runner, error):
        self.runner, self.error, self.num_runs = runner, error, 0

    def __call__(self, tensors):
        self.num_runs += 1
        if self.num_runs == 2:
            raise self.error
        return self.runner(tensors)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a fault that a compiler's code found")], ids=type)
@pytest.mark.parametrize(("limit", "num_done"), [(4000, 1.0), (0, 0.0)])
def test_a_failed_call_leaves_a_device_that_goes_on(fused, settings, error, limit, num_done, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", limit)
    model = mlp()
    choice = Choice(micro_batches_at_once=1, fused_update=True)
    pair = fused(model, settings("ADAM"), iterations=2, accumulation=2, choice=choice)
    runners = dict(pair.compiled._runners)
    pair.compiled._runners = {role: FailsInSecondRun(runner, error) for role, runner in runners.items()}

    with pytest.raises(type(error)):
        pair.call(*batch(model, 16))
    pair.compiled._runners = runners
    assert pair.states[1].slots["0.bias"]["Step"] == num_done
    pair.states[0].slots = {name: {k: v.clone() for k, v in own.items()} for name, own in pair.states[1].slots.items()}
    pair.states[0].upload({name: tensor.detach() for name, tensor in pair.states[1].parameters.items()})

    pair.assert_same(*batch(model, 16))
