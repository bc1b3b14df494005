"""What a device call means in terms of plain PyTorch: accumulation, replicas and iterations obey three laws."""

from __future__ import annotations

import copy
from typing import List

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from porting import PortOptions, to_ipu

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}

few = st.integers(min_value=1, max_value=3)


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def make_batch(rows: int, *, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


def train_eagerly(model: nn.Module, optimizer, batches) -> List[float]:
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def port(model: nn.Module, name: str, **options):
    return to_ipu(
        model,
        nn.CrossEntropyLoss(),
        optimizer=OPTIMIZERS[name](model.parameters()),
        options=PortOptions(output_mode="all", **options),
        device="sim",
    )


def assert_same_weights(actual: nn.Module, expected: nn.Module, *, atol: float = 2e-5) -> None:
    for (name, ours), theirs in zip(actual.state_dict().items(), expected.state_dict().values()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@settings(max_examples=8, deadline=None)
@given(micro=few, accumulation=few, steps=few, seed=st.integers(0, 10_000))
def test_accumulation_equals_one_large_batch(name, micro, accumulation, steps, seed):
    model = make_model()
    reference = copy.deepcopy(model)
    batches = [make_batch(micro * accumulation, seed=seed + step) for step in range(steps)]

    ported = port(model, name, accumulation=accumulation)
    losses = [ported(x, y)[1].mean().item() for x, y in batches]

    expected = train_eagerly(reference, OPTIMIZERS[name](reference.parameters()), batches)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert_same_weights(ported.model, reference)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@settings(max_examples=8, deadline=None)
@given(micro=few, replicas=few, steps=few, seed=st.integers(0, 10_000))
def test_replicas_average_their_gradients(name, micro, replicas, steps, seed):
    model = make_model()
    reference = copy.deepcopy(model)
    optimizer = OPTIMIZERS[name](reference.parameters())
    batches = [make_batch(micro * replicas, seed=seed + step) for step in range(steps)]

    ported = port(model, name, replicas=replicas)
    for x, y in batches:
        ported(x, y)
        optimizer.zero_grad()
        for rows, labels in zip(x.chunk(replicas), y.chunk(replicas)):
            (nn.functional.cross_entropy(reference(rows), labels) / replicas).backward()
        optimizer.step()

    assert_same_weights(ported.model, reference)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@settings(max_examples=8, deadline=None)
@given(micro=few, iterations=few, accumulation=few, calls=few, seed=st.integers(0, 10_000))
def test_device_iterations_equal_repeated_calls(name, micro, iterations, accumulation, calls, seed):
    model, other = make_model(), make_model()
    other.load_state_dict(model.state_dict())
    rows = micro * accumulation
    batches = [make_batch(rows * iterations, seed=seed + call) for call in range(calls)]

    at_once = port(model, name, device_iterations=iterations, accumulation=accumulation)
    one_by_one = port(other, name, accumulation=accumulation)
    for x, y in batches:
        losses = at_once(x, y)[1].reshape(-1)
        parts = zip(x.split(rows), y.split(rows))
        repeated = torch.cat([one_by_one(rows_x, rows_y)[1].reshape(-1) for rows_x, rows_y in parts])
        assert torch.equal(losses, repeated)

    assert_same_weights(at_once.model, one_by_one.model, atol=0.0)


@settings(max_examples=8, deadline=None)
@given(accumulation=few, replicas=few, seed=st.integers(0, 10_000))
def test_sum_reduction_is_mean_reduction_times_the_number_of_micro_batches(accumulation, replicas, seed):
    parts = accumulation * replicas
    x, y = make_batch(2 * parts, seed=seed)
    summed, averaged = nn.Linear(6, 3), nn.Linear(6, 3)
    averaged.load_state_dict(summed.state_dict())
    before = summed.weight.detach().clone()

    for model, reduction in ((summed, "sum"), (averaged, "mean")):
        to_ipu(
            model,
            nn.CrossEntropyLoss(),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
            options=PortOptions(accumulation=accumulation, replicas=replicas, reduction=reduction),
            device="sim",
        )(x, y)

    torch.testing.assert_close(summed.weight - before, parts * (averaged.weight - before), rtol=1e-3, atol=1e-6)
