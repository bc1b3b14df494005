"""Micro-batches that run at once give what they give one by one, and those that may not run at once do not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.batched_turns import BatchedTurns, turns_at_once

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

    assert turns_at_once(graph) == 1


def test_half_precision_shows_the_order_of_summation():
    graph = capture_step(Function(lambda layer, x: layer(x.half())), [torch.ones(ROWS, 4)], mode="inference")

    assert turns_at_once(graph) == 1


def test_large_micro_batches_gain_nothing_from_company():
    assert turns_at_once(capture_step(nn.ReLU(), [torch.ones(1 << 20)], mode="inference")) == 1


def test_an_operator_without_a_rule_is_found_out_and_runs_alone(device, capfd):
    x = torch.randn(4 * ROWS, 4)
    on_device = device(Function(attend), x[:ROWS], mode="inference")

    (result,) = on_device.run(x, iterations=4, output_mode="all")

    parts = [on_device.run(part, output_mode="all")[0] for part in x.split(ROWS)]
    assert torch.equal(result, torch.cat(parts))
    assert on_device.executable._batched.most == 1
    assert capfd.readouterr().err == ""


def test_a_fault_that_values_cause_is_the_one_of_the_micro_batch(device):
    labels = torch.tensor([0, 1, 7, 0])
    on_device = device(Function(lambda layer, y: F.embedding(y, layer.weight)), labels[:1], mode="inference")

    with pytest.raises(IndexError, match="index out of range"):
        on_device.run(labels, iterations=4, output_mode="all")


def test_a_kept_result_does_not_keep_the_memory_of_the_others(device):
    x = torch.randn(64 * ROWS, 4)
    on_device = device(nn.Linear(4, 4), x[:ROWS], mode="inference")

    (result,) = on_device.run(x, iterations=64, output_mode="final")

    assert result.untyped_storage().nbytes() == ROWS * 4 * 4


def test_somebody_who_watches_each_micro_batch_sees_each(device):
    graph = capture_step(nn.ReLU(), [torch.ones(ROWS, 4)], mode="inference")

    assert BatchedTurns(graph, lambda *tensors: tensors, is_watched=True).most == 1
