"""A call equals a plain loop over iterations, accumulation and replicas, whatever the sizes and options."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import porting.simulator as simulator

RATE, MOMENTUM = 0.1, 0.9


class Counting(nn.Module):
    """Has a trained weight and buffers that move on with each micro-batch."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        output = self.linear(x)
        self.mean.mul_(0.5).add_(output.detach().mean(0))
        self.count += 1
        return output, self.count * 1, simulator.identity_loss((output**2).mean(), "sum")


class Sizes(NamedTuple):
    iterations: int
    accumulation: int
    groups: int
    group_size: int
    rows: int

    @property
    def replicas(self):
        return self.groups * self.group_size

    @property
    def slices(self):
        return self.iterations * self.accumulation * self.groups

    def slice_of(self, number, replica, kind):
        if self.group_size == 1:
            return number * self.replicas + replica
        is_strided = kind == simulator.CommGroupType.Orthogonal
        group = replica % self.groups if is_strided else replica // self.group_size
        return group * self.iterations * self.accumulation + number


sizes = st.builds(Sizes, *(st.integers(1, 3) for _ in range(2)), *(st.integers(1, 2) for _ in range(3)))
kinds = st.sampled_from([simulator.CommGroupType.Consecutive, simulator.CommGroupType.Orthogonal])
reductions = st.sampled_from([simulator.ReductionType.Mean, simulator.ReductionType.Sum])
modes = st.sampled_from([mode for mode in simulator.OutputMode if mode != simulator.OutputMode.Default])


def results_of_a_loop(model, x, size, kind, reduction):
    """Train `model` and return the results of each micro-batch by its number and replica."""
    own = [{name: buffer.clone() for name, buffer in model.named_buffers()} for _ in range(size.replicas)]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    share = size.accumulation * size.replicas if reduction == simulator.ReductionType.Mean else 1
    found = {}
    for number in range(size.iterations * size.accumulation):
        for replica in range(size.replicas):
            model.load_state_dict(own[replica], strict=False)
            results = model(x.chunk(size.slices)[size.slice_of(number, replica, kind)])
            (results[-1] / share).backward()
            own[replica] = {name: buffer.clone() for name, buffer in model.named_buffers()}
            found[number, replica] = [result.detach().clone() for result in results]
        if (number + 1) % size.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    model.load_state_dict(own[0], strict=False)
    return found


def combined(found, size, mode, period):
    last = size.iterations * size.accumulation - 1
    if mode == simulator.OutputMode.Sum:
        by_replica = [[found[number, replica] for number in range(last + 1)] for replica in range(size.replicas)]
        kept = [[sum(parts) for parts in zip(*results)] for results in by_replica]
    else:
        wanted = {
            simulator.OutputMode.All: lambda number: True,
            simulator.OutputMode.Final: lambda number: number == last,
            simulator.OutputMode.EveryN: lambda number: (number + 1) % period == 0,
        }[mode]
        kept = [results for (number, _replica), results in found.items() if wanted(number)]
    if len(kept) == 1:
        return kept[0]
    return [torch.stack(parts) if parts[0].dim() == 0 else torch.cat(parts) for parts in zip(*kept)]


@settings(max_examples=40)
@given(size=sizes, kind=kinds, reduction=reductions, mode=modes)
def test_a_call_is_a_loop(size, kind, reduction, mode):
    torch.manual_seed(0)
    x = torch.randn(size.slices * size.rows, 3)
    model = Counting()
    eager = copy.deepcopy(model)
    period = size.accumulation
    options = simulator.Options().deviceIterations(size.iterations).replicationFactor(size.replicas)
    options.broadcastBuffers(False).inputReplicaGrouping(size.group_size, kind).outputMode(mode, period)
    options.Training.gradientAccumulation(size.accumulation)
    options.Training.accumulationAndReplicationReductionType(reduction)
    optimizer = simulator.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    executor = simulator.trainingModel(model, options.showCompilationProgressBar(False), optimizer)

    results = executor(x)

    expected = combined(results_of_a_loop(eager, x, size, kind, reduction), size, mode, period)
    for found, wanted in zip(results, expected):
        torch.testing.assert_close(found, wanted.to(found.dtype), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(model.state_dict()), dict(eager.state_dict()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_next_call_goes_on_where_the_last_one_ended(replicas):
    model = Counting()
    options = simulator.Options().replicationFactor(replicas).broadcastBuffers(False)
    executor = simulator.trainingModel(model, options, simulator.optim.SGD(model.parameters(), lr=0.0))

    counts = [executor(torch.ones(2, 3))[1].tolist() for _ in range(3)]

    assert counts == [[1] * replicas, [2] * replicas, [3] * replicas]
