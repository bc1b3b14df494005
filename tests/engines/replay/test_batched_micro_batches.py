"""Micro-batches that run at once give what they give one by one, and those that may not run at once do not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.replay.batched_micro_batches import BatchedMicroBatches, choose_number_at_once

ROWS = 3
PLANS = [
    {"iterations": 4, "output_mode": "all"},
    {"iterations": 2, "accumulation": 3, "output_mode": "all"},
    {"accumulation": 4, "output_mode": "final"},
    {"iterations": 2, "accumulation": 2, "replicas": 2, "output_mode": "sum"},
    {"accumulation": 5, "output_mode": "every_n", "output_period": 4},
    {"replicas": 3, "mean_reduction": False, "output_mode": "final"},
]


class Function(nn.Module):
    """A model whose `forward` is `function(layer, x)`, with a layer of four features."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.function(self.layer, x)


def write_to_input(layer, x):
    x += 1
    return layer(x)


def write_to_slice(layer, x):
    y = layer(x)
    y[:, 1:3] *= 2
    return y


def embed(layer, x):
    return layer(F.embedding(x.argmax(1), torch.eye(4, device=x.device)))


def attend(layer, x):
    heads = layer(x).view(ROWS, 1, 2, 2)
    return F.scaled_dot_product_attention(heads, heads, heads).reshape(ROWS, 4)


MODELS = {
    "layers": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 1), nn.GroupNorm(2, 4), nn.MaxPool2d(2), nn.Flatten()
    ),
    "batch statistics": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
    "fixed statistics": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval(),
    "sum over the batch": lambda: Function(lambda layer, x: layer(x) - x.sum(0)),
    "softmax over the batch": lambda: Function(lambda layer, x: layer(x).softmax(0)),
    "numbers of several types": lambda: Function(lambda layer, x: layer(x) + x.sum() * (x > 0).sum() / 7),
    "write to the input": lambda: Function(write_to_input),
    "write to a slice": lambda: Function(write_to_slice),
    "embedding": lambda: Function(embed),
    "a constant": lambda: Function(lambda layer, x: layer(x) * torch.arange(4.0, device=x.device)),
}


def inputs_for(plan, seed=0):
    count = plan.get("iterations", 1) * plan.get("accumulation", 1) * plan.get("replicas", 1)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count * ROWS, 4, generator=generator), torch.randn(count * ROWS, 4, generator=generator)


def both_ways(device, settings, model, plan):
    """Run two calls with micro-batches at once and one by one; return both devices and both calls' results."""
    example = [tensor[:ROWS] for tensor in inputs_for({})]
    replicas = plan.get("replicas", 1)
    at_once, by_itself = (device(model, *example, loss=F.mse_loss, replicas=replicas) for _ in range(2))
    by_itself.executable._batched.most = 1
    results = [
        [
            one.run(*(tensor.clone() for tensor in inputs_for(plan, seed)), settings=settings(), **plan)
            for seed in (0, 1)
        ]
        for one in (at_once, by_itself)
    ]
    return at_once, by_itself, results


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: " ".join(f"{key}={value}" for key, value in plan.items()))
@pytest.mark.parametrize("name", MODELS)
def test_micro_batches_at_once_give_what_they_give_one_by_one(device, settings, name, plan):
    torch.manual_seed(0)

    at_once, by_itself, (together, alone) = both_ways(device, settings, MODELS[name](), plan)

    assert at_once.executable._batched.most > 1
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(at_once.state.parameters, by_itself.state.parameters)


@pytest.mark.parametrize(
    "model",
    [nn.Dropout(), nn.BatchNorm1d(4), Function(lambda layer, x: x + torch.rand(4, device=x.device))],
    ids=["dropout", "running statistics", "random numbers"],
)
def test_micro_batches_that_meet_run_by_themselves(model):
    graph = capture_step(model, [torch.ones(ROWS, 4)], mode="inference")

    assert choose_number_at_once(graph) == 1


def test_half_precision_shows_the_order_of_summation():
    graph = capture_step(Function(lambda layer, x: layer(x.half())), [torch.ones(ROWS, 4)], mode="inference")

    assert choose_number_at_once(graph) == 1


def test_large_micro_batches_gain_nothing_from_company():
    assert choose_number_at_once(capture_step(nn.ReLU(), [torch.ones(1 << 20)], mode="inference")) == 1


def test_an_operator_without_a_rule_is_found_out_and_runs_alone(device, capfd):
    x = torch.randn(4 * ROWS, 4)
    on_device = device(Function(attend), x[:ROWS], mode="inference")

    (result,) = on_device.run(x, iterations=4, output_mode="all")

    parts = [on_device.run(part, output_mode="all")[0] for part in x.split(ROWS)]
    assert torch.equal(result, torch.cat(parts))
    assert on_device.executable._batched.most == 1
    assert capfd.readouterr().err == ""


INDEXING = {
    "index": lambda t, i: t[i],
    "index select": lambda t, i: t.index_select(0, i),
    "gather": lambda t, i: t.gather(0, i[:, None].expand(-1, 3)),
    "take": lambda t, i: t.take(i * 3),
    "embedding of an input": lambda t, i: F.embedding(i, t),
    "embedding of a constant": lambda t, i: F.embedding(i, torch.eye(2, device=t.device)) + t.sum(),
    "embedding bag": lambda t, i: F.embedding_bag(i[None], t),
    "index add": lambda t, i: t.index_add(0, i, torch.ones(2, 3, device=t.device)),
    "index copy": lambda t, i: t.index_copy(0, i, torch.ones(2, 3, device=t.device)),
    "index fill": lambda t, i: t.index_fill(0, i, 5.0),
    "index put": lambda t, i: t.index_put((i,), torch.tensor(5.0, device=t.device), accumulate=True),
    "index reduce": lambda t, i: t.index_reduce(0, i, t, "mean"),
    "put": lambda t, i: t.put(i * 3, torch.ones(2, device=t.device)),
    "scatter": lambda t, i: t.scatter(0, i[:, None].expand(-1, 3), 5.0),
    "scatter add": lambda t, i: t.scatter_add(0, i[:, None].expand(-1, 3), t),
    "scatter reduce": lambda t, i: t.scatter_reduce(0, i[:, None].expand(-1, 3), t, "sum"),
    "one hot": lambda t, i: F.one_hot(i, 2) + t[0, 0],
    "negative log likelihood": lambda t, i: F.nll_loss(t, i),
    "cross entropy": lambda t, i: F.cross_entropy(t, i, reduction="none"),
    "margin loss": lambda t, i: F.multi_margin_loss(t, i),
}


class Indexing(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, table, index):
        return self.function(table, index)


@pytest.mark.parametrize("name", INDEXING)
def test_a_fault_that_values_cause_is_the_one_of_the_micro_batch(device, name):
    table, index = torch.arange(24.0).view(8, 3), torch.tensor([0, 1, 0, 1, 1, 1, 0, 0])
    faulty = index.clone()
    faulty[3] = 7
    on_device = device(Indexing(INDEXING[name]), table[:2], index[:2], mode="inference")
    with pytest.raises((IndexError, RuntimeError)) as alone:
        on_device.run(table[2:4], faulty[2:4], output_mode="all")

    faults = []
    for _call in range(2):
        with pytest.raises((IndexError, RuntimeError)) as at_once:
            on_device.run(table, faulty, iterations=4, output_mode="all")
        faults.append(type(at_once.value))
        on_device.run(table, index, iterations=4, output_mode="all")  # from here on a run at once is known to work

    assert faults == [type(alone.value)] * 2


def test_a_faulty_batch_does_not_end_the_runs_at_once(device):
    x = torch.tensor([0, 1, 7, 0])
    on_device = device(Function(lambda layer, y: F.embedding(y, layer.weight)), x[:1], mode="inference")

    with pytest.raises(IndexError, match="index out of range"):
        on_device.run(x, iterations=4, output_mode="all")

    assert on_device.executable._batched.most > 1


@pytest.mark.parametrize("mode", [{"output_mode": "final"}, {"output_mode": "every_n", "output_period": 40}])
def test_a_kept_result_does_not_keep_the_memory_of_the_others(device, mode):
    x = torch.randn(64 * ROWS, 4)
    on_device = device(nn.Linear(4, 4), x[:ROWS], mode="inference")

    (result,) = on_device.run(x, iterations=64, **mode)

    assert result.untyped_storage().nbytes() == ROWS * 4 * 4


def test_somebody_who_watches_each_micro_batch_sees_each(device):
    graph = capture_step(nn.ReLU(), [torch.ones(ROWS, 4)], mode="inference")

    assert BatchedMicroBatches(graph, lambda *tensors: tensors, at_most=1).most == 1
