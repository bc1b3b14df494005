"""Programs over a device's tensors do what the replay engine does; here they are interpreted, without a compiler."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting.engines.calls.call_plan import ReplicaGroups
from porting.engines.calls.executable import Choice
from porting.engines.compiled import step_program
from porting.engines.replay.replay import build_replay

OPTIMIZERS = {
    "sgd": ("SGD2", {}),
    "sgd with everything": ("SGD2", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "dampening": 0.2}),
    "adam": ("ADAM", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "adamw": ("ADAMW", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "clipped": ("ADAM", {"learning_rate": 0.01, "max_grad_norm": 0.1, "loss_scaling": 4.0}),
    "rmsprop": ("RMSPROP", {"learning_rate": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.1}),
    "rmsprop of tf": ("RMSPROP", {"learning_rate": 0.01, "use_tf_variant": True}),
    "lamb": ("LAMB", {"learning_rate": 0.01, "weight_decay": 0.1, "max_weight_norm": 1.0}),
    "lamb without correction": ("LAMB", {"learning_rate": 0.01, "bias_correction": False}),
}
each_optimizer = pytest.mark.parametrize(("kind", "values"), OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
each_mode = pytest.mark.parametrize("mode", ["final", "all", "sum", "every_n"])

# each example captures and traces a model
few_examples = hypothesis.settings(max_examples=8, deadline=None)
counts = st.integers(1, 4)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.2)
        self.head = nn.Linear(8, 10)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(3, 5, batch_first=True)
        self.head = nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


class Body(nn.Module):
    """`forward` is `function(module, *inputs)`; the parameter has shape (3,)."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, *inputs):
        return self.function(self, *inputs)


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
    if isinstance(model, Attention):
        return torch.randint(0, 10, (rows, 6), generator=generator), labels
    shape = (6, 3) if isinstance(model, Recurrent) else (1, 5, 5) if len(model) == 6 else (3,)
    return torch.randn(rows, *shape, generator=generator), labels


def losses_of(twins, model, num_calls):
    """Train for `num_calls` calls; return the last results, the losses, of both devices."""
    called = [twins.call(*batch(model, 4 * twins.plan.num_slices, seed)) for seed in range(num_calls)]
    return [torch.stack([results[which][-1] for results in called]) for which in (0, 1)]


# -- training ----------------------------------------------------------------------------------------------------------


def test_a_call_uses_the_threads_of_its_choice(twins, settings, monkeypatch):
    used = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    model = mlp()
    pair = twins(model, *batch(model, 4), settings=settings("SGD2"), loss=F.cross_entropy, choice=Choice(num_threads=1))

    pair.assert_same(*batch(model, 4))
    pair.replay = build_replay(pair.graph, pair.compiled.request)
    pair.assert_same(*batch(model, 4))

    assert used == [1, 2] * 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [mlp, convolutions, Recurrent, Attention])
@pytest.mark.parametrize("kind", ["SGD2", "ADAM"])
def test_losses_stay_equal_over_twenty_steps(twins, settings, make, kind):
    model = make()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings(kind, learning_rate=0.01))

    expected, found = losses_of(pair, model, 20)

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@each_optimizer
def test_every_optimizer_makes_the_same_steps(twins, settings, kind, values):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings(kind, **values), iterations=3)

    for seed in range(2):
        pair.assert_same(*batch(model, 12, seed))


@pytest.mark.slow
@each_mode
@few_examples
@given(iterations=counts, accumulation=counts, replicas=counts, period=counts, steps=counts, at_once=counts)
def test_any_plan_gives_the_same_results(
    twins, settings, mode, iterations, accumulation, replicas, period, steps, at_once
):
    model = mlp()
    pair = twins(
        model,
        *batch(model, 2),
        loss=F.cross_entropy,
        settings=settings("SGD2", momentum=0.9),
        choice=Choice(steps_per_run=steps, micro_batches_at_once=at_once),
        iterations=iterations,
        accumulation=accumulation,
        replicas=replicas,
        output_mode=mode,
        output_period=period,
    )

    for seed in range(2):
        pair.assert_same(*batch(model, 2 * pair.plan.num_slices, seed))
    assert pair.findings == []


@pytest.mark.sampled(3)
@each_mode
@pytest.mark.parametrize("make", [mlp, convolutions])
def test_a_step_of_many_micro_batches_is_done_in_several_runs(twins, settings, make, mode, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 20)
    model = make()
    pair = twins(
        model,
        *batch(model, 2),
        loss=F.cross_entropy,
        settings=settings("ADAM", eps=1e-2, max_grad_norm=0.1),
        choice=Choice(micro_batches_at_once=3),
        iterations=2,
        accumulation=3,
        replicas=2,
        output_mode=mode,
        output_period=2,
    )

    for seed in range(2):
        pair.assert_same(*batch(model, 24, seed))
    assert sorted(pair.programs.by_role) == ["accumulate", "update"]


def test_groups_of_parameters_have_settings_of_their_own(twins, settings):
    model = mlp()
    pair = twins(
        model,
        *batch(model, 4),
        loss=F.cross_entropy,
        settings=[settings("ADAMW", weight_decay=0.1), settings("ADAMW", learning_rate=0.01)],
        names=[["0.weight", "2.weight"], ["0.bias"]],
    )

    for seed in range(2):
        pair.assert_same(*batch(model, 4, seed))


def test_a_parameter_without_a_gradient_is_left_alone(twins, settings):
    model = Body(lambda module, x: (x.sum(1), F.mse_loss(x * module.total, x)))
    model.used = nn.Parameter(torch.ones(3))
    model.function = lambda module, x: F.mse_loss(x * module.used, x)
    x = torch.ones(2, 3)
    pair = twins(model, x, settings=settings("ADAM", weight_decay=0.1))

    pair.assert_same(x)

    assert pair.states[1].parameters["weight"].tolist() == [1.0, 2.0, 3.0]
    assert list(pair.states[1].slots) == ["used"]


def test_parameters_differ_between_groups_of_replicas(twins, settings):
    model = mlp()
    groups = {"0.weight": ReplicaGroups(replicas=4, size=2)}
    host = {name: tensor.detach() for name, tensor in model.named_parameters()}
    host["0.weight"] = torch.stack([host["0.weight"], -host["0.weight"]])
    names = [["0.weight[0]", "0.weight[1]", "0.bias", "2.weight", "2.bias"]]
    pair = twins(
        model,
        *batch(model, 2),
        loss=F.cross_entropy,
        settings=settings("ADAM"),
        groups=groups,
        host=host,
        names=names,
        replicas=4,
        accumulation=2,
        output_mode="all",
    )

    for seed in range(2):
        pair.assert_same(*batch(model, 16, seed))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("choice", [Choice(), Choice(steps_per_run=2), Choice(micro_batches_at_once=1)])
def test_replicas_of_a_group_get_the_same_rows(twins, settings, strided, choice):
    model = mlp()
    pair = twins(
        model,
        *batch(model, 2),
        loss=F.cross_entropy,
        settings=settings("SGD2"),
        choice=choice,
        iterations=4,
        replicas=4,
        input_groups=ReplicaGroups(replicas=4, size=2, strided=strided),
        output_mode="all",
    )

    pair.assert_same(*batch(model, 16))


@pytest.mark.slow
def test_half_precision_is_rounded_where_the_graph_rounds(twins, settings):
    model = mlp().half()
    x, y = batch(model, 4)
    optimizer = settings("ADAM", eps=1e-3, first_order_type=torch.float16, loss_scaling=128.0)
    pair = twins(model, x.half(), y, loss=F.cross_entropy, settings=optimizer, accumulation=2)

    for seed in range(2):
        x, y = batch(model, 8, seed)
        pair.assert_same(x.half(), y, tolerance=2e-3)


@pytest.mark.parametrize("accum_type", [torch.float16, torch.float32])
def test_gradients_add_up_in_the_type_of_the_accumulator(twins, settings, accum_type):
    model = mlp().half()
    x, y = batch(model, 2)
    optimizer = settings("SGD2", momentum=0.9, accum_type=accum_type, loss_scaling=128.0)
    pair = twins(model, x.half(), y, loss=F.cross_entropy, settings=optimizer, accumulation=8)

    x, y = batch(model, 16)
    pair.assert_same(x.half(), y, tolerance=2e-3)


# -- what changes between calls ----------------------------------------------------------------------------------------


def test_numbers_change_between_calls(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM", weight_decay=0.1))

    for call, rate in enumerate([0.1, 0.01, 0.02]):
        changed = settings("ADAM", weight_decay=0.1 * rate, learning_rate=rate, beta1=0.5 + rate, loss_scaling=2.0)
        pair.assert_same(*batch(model, 4, call), settings=changed)
    assert pair.findings == []


def test_the_reduction_of_gradients_changes_between_calls(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings(), accumulation=2)

    pair.assert_same(*batch(model, 8), mean_reduction=False)
    pair.assert_same(*batch(model, 8), divides_last=True)

    assert pair.findings == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "changed", [{"momentum": 0.9}, {"kind": "ADAM"}, {"max_grad_norm": 1.0}], ids=["momentum", "kind", "clipping"]
)
def test_another_optimizer_is_replayed_and_reported_once(twins, settings, changed):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings())

    for seed in range(2):
        pair.assert_same(*batch(model, 4, seed), settings=settings(**changed))

    assert [finding.code for finding in pair.findings] == ["E008"]


def test_what_was_replayed_goes_on_compiled(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))

    for accumulation in (1, 2, 1):
        pair.assert_same(*batch(model, 4 * accumulation), accumulation=accumulation)


def test_parameters_that_made_different_numbers_of_updates_are_replayed(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    pair.assert_same(*batch(model, 4))
    for state in pair.states:
        state.slots["0.bias"]["Step"].fill_(5.0)

    pair.assert_same(*batch(model, 4))

    assert "different numbers of updates" in pair.findings[0].message


def test_a_loaded_optimizer_state_counts(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    pair.assert_same(*batch(model, 4))
    for state in pair.states:
        for slots in state.slots.values():
            slots["Step"].fill_(7.0)

    pair.assert_same(*batch(model, 4))

    assert pair.findings == []


def test_a_state_that_lost_its_slots_starts_anew(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    pair.assert_same(*batch(model, 4))
    for state in pair.states:
        state.slots.clear()

    pair.assert_same(*batch(model, 4))


# -- results and inputs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda module, x: module.weight,
        lambda module, x: module.weight[1:],
        lambda module, x: module.total.view(3, 1),
        lambda module, x: x,
        lambda module, x: x[0],
        lambda module, x: torch.tensor([1.0, 2.0, 3.0], device=x.device),
    ],
    ids=["parameter", "view of a parameter", "view of a buffer", "input", "view of an input", "constant"],
)
def test_a_result_has_memory_of_its_own(twins, function):
    x = torch.arange(6.0).reshape(2, 3)
    pair = twins(Body(function), x, mode="inference")

    _replayed, (first,) = pair.call(x)
    expected = first.clone()
    first.fill_(-1.0)
    _replayed, (second,) = pair.call(x)

    assert torch.equal(second, expected)
    assert torch.equal(x, torch.arange(6.0).reshape(2, 3))


def test_a_weight_is_returned_as_it_was_at_that_moment(twins, settings):
    x = torch.ones(3)
    pair = twins(Body(lambda module, x: (module.weight, F.mse_loss(module.weight, x))), x, settings=settings())

    pair.assert_same(x)


@pytest.mark.parametrize("choice", [Choice(), Choice(micro_batches_at_once=1), Choice(micro_batches_at_once=2)])
def test_inputs_that_are_written_to_come_back_after_the_outputs(twins, choice):
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    body = Body(lambda module, x, y: (y[0].add_(x[1]), x * 3)[1])
    pair = twins(body, x, y, mode="inference", choice=choice, iterations=2, output_mode="all")

    pair.assert_same(torch.ones(4, 3), torch.zeros(4, 3))

    assert pair.call(torch.ones(4, 3), torch.zeros(4, 3))[1][1].sum() == 6.0


@pytest.mark.parametrize("limit", [4000, 0])
def test_each_replica_has_buffers_of_its_own(twins, limit, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", limit)
    body = Body(lambda module, x: module.total.add_(x.sum(0)) * module.weight)
    x = torch.arange(12.0).reshape(4, 3)
    pair = twins(body, x[:1], mode="inference", replicas=2, iterations=2, output_mode="all")

    for _ in range(2):
        pair.assert_same(x)


def test_an_output_that_depends_on_nothing_comes_back_once(twins, settings):
    body = Body(lambda module, x: (torch.arange(3.0, device=x.device), F.mse_loss(module.weight * x, x)))
    x = torch.ones(1, 3)
    pair = twins(body, x, settings=settings(), iterations=4, output_mode="all", choice=Choice(steps_per_run=2))

    pair.assert_same(torch.ones(4, 3))

    assert pair.call(torch.ones(4, 3))[1][0].shape == (3,)


def test_an_input_of_another_memory_order_is_copied(twins):
    x = torch.arange(6.0).reshape(2, 3)
    pair = twins(Body(lambda module, x: x * module.weight), x, mode="inference")

    pair.assert_same(torch.arange(6.0).reshape(3, 2).t())

    assert pair.findings == []


def test_a_batch_of_another_size_is_replayed(twins):
    x = torch.arange(6.0).reshape(2, 3)
    pair = twins(Body(lambda module, x: x * module.weight), x, mode="inference")

    pair.assert_same(torch.ones(5, 3))

    assert [finding.code for finding in pair.findings] == ["E008"]


def test_made_up_inputs_are_those_of_replay(twins):
    x = torch.arange(6.0).reshape(2, 3)
    pair = twins(Body(lambda module, x: x * module.weight), x, mode="inference", synthetic="zeros")

    pair.assert_same(x)


def test_a_loss_that_trains_nothing_is_computed(twins, settings):
    body = Body(lambda module, x: F.mse_loss(x, module.total.expand(2, 3)))
    pair = twins(body, torch.ones(2, 3), settings=settings("ADAM"), iterations=2, output_mode="sum")

    pair.assert_same(torch.ones(4, 3))


# -- the world around --------------------------------------------------------------------------------------------------


def test_the_global_random_stream_stays_where_it_is(twins, settings):
    model = convolutions()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings())
    before = torch.get_rng_state()

    pair.assert_same(*batch(model, 4))

    assert torch.equal(torch.get_rng_state(), before)


def test_a_call_under_the_modes_of_a_caller_is_the_same(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings())

    with torch.inference_mode(), torch.autocast("cpu"):
        pair.assert_same(*batch(model, 4))

    assert not any(parameter.is_inference() for parameter in pair.states[1].parameters.values())


class Interrupted:
    """A runner that is interrupted in its second run."""

    def __init__(self, runner):
        self.runner, self.num_runs = runner, 0

    def __call__(self, tensors):
        self.num_runs += 1
        if self.num_runs == 2:
            raise KeyboardInterrupt
        return self.runner(tensors)


@pytest.mark.parametrize("limit", [4000, 0])
def test_an_interrupted_call_leaves_a_device_that_goes_on(twins, settings, limit, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", limit)
    model = mlp()
    pair = twins(
        model,
        *batch(model, 4),
        loss=F.cross_entropy,
        settings=settings("ADAM"),
        iterations=2,
        accumulation=2,
        choice=Choice(micro_batches_at_once=1),
    )
    roles = dict(pair.compiled._runners)
    pair.compiled._runners = {role: Interrupted(runner) for role, runner in roles.items()}

    with pytest.raises(KeyboardInterrupt):
        pair.call(*batch(model, 16))
    pair.compiled._runners = roles
    done = pair.states[1].slots["0.bias"]["Step"].item()
    pair.states[0].slots = {name: {k: v.clone() for k, v in own.items()} for name, own in pair.states[1].slots.items()}
    pair.states[0].upload({name: tensor.detach() for name, tensor in pair.states[1].parameters.items()})

    pair.assert_same(*batch(model, 16))

    assert done == (1.0 if limit else 0.0)


def fail(_tensors):
    raise RuntimeError("a fault that a compiler's code found")


@pytest.mark.parametrize("limit", [4000, 0])
def test_a_value_that_an_operator_refuses_is_the_error_of_replay(twins, settings, limit, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", limit)
    model = mlp()
    choice = Choice(micro_batches_at_once=1)
    pair = twins(
        model,
        *batch(model, 4),
        loss=F.cross_entropy,
        settings=settings("ADAM"),
        accumulation=2,
        iterations=2,
        choice=choice,
    )
    pair.assert_same(*batch(model, 16))
    before = {name: tensor.detach().clone() for name, tensor in pair.states[1].parameters.items()}
    x, labels = batch(model, 16)
    labels[0] = 9
    pair.compiled._runners = dict.fromkeys(pair.compiled._runners, fail)
    pair.compiled.layout = replace(pair.compiled.layout, bounds=())

    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        pair.compiled.run(pair.states[1], [x, labels.int()], pair.plan, groups=pair.settings, group_names=pair.names)

    torch.testing.assert_close(pair.states[1].parameters, before, rtol=0, atol=0)


def test_a_label_out_of_bounds_leaves_the_weights_that_replay_leaves(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"), iterations=2)
    x, labels = batch(model, 8)
    labels[7] = 9
    pair.compiled._runners = {"step": fail}

    for executable, state in zip((pair.replay, pair.compiled), pair.states):
        with pytest.raises(IndexError, match="Target 9 is out of bounds"):
            executable.run(state, [x, labels.int()], pair.plan, groups=pair.settings, group_names=pair.names)

    before, after = pair.states
    torch.testing.assert_close(after.parameters, before.parameters, rtol=0, atol=0)
    torch.testing.assert_close(after.slots, before.slots, rtol=0, atol=0)
    assert before.slots["0.bias"]["Step"] == 1.0


def test_the_default_type_of_a_caller_changes_nothing(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    given = [batch(model, 4, seed) for seed in range(2)]
    dtypes = []
    step = pair.compiled._runners["step"]
    pair.compiled._runners = {"step": lambda tensors: dtypes.append([t.dtype for t in tensors]) or step(tensors)}

    pair.assert_same(*given[0])
    pair.compiled._numbers = None
    torch.set_default_dtype(torch.float64)
    try:
        pair.assert_same(*given[1])
    finally:
        torch.set_default_dtype(torch.float32)

    assert dtypes[0] == dtypes[1]


def test_a_fault_that_replay_does_not_have_is_an_error_of_its_own(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    pair.compiled._runners = {"step": fail}

    with pytest.raises(RuntimeError, match="a compiler's code"):
        pair.call(*batch(model, 4))

    assert pair.states[1].slots["0.bias"]["Step"] == 0.0


def test_two_executables_take_turns_on_one_device(twins, settings):
    model = mlp()
    pair = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    other = twins(model, *batch(model, 4), loss=F.cross_entropy, settings=settings("ADAM"))
    pair.assert_same(*batch(model, 4))
    other.states = pair.states

    other.assert_same(*batch(model, 4))
    pair.assert_same(*batch(model, 4))
