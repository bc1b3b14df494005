"""Several processes train one model: their gradients are reduced over all of them, their results stay their own."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
from torch import nn

import porting.simulator as simulator

NUM_PROCESSES = 2


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = make_model()

    def forward(self, x):
        return simulator.identity_loss(self.model(x) ** 2, "mean")


def options_of(rank, reduction):
    options = simulator.Options().showCompilationProgressBar(False)
    options.Distributed.configureProcessId(rank, NUM_PROCESSES)
    options.Training.gradientAccumulation(2)
    options.Training.accumulationAndReplicationReductionType(reduction)
    return options


def share_of(rank):
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(7)).chunk(NUM_PROCESSES)[rank]


def train(rank, meeting_point, reduction, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=NUM_PROCESSES)
    try:
        model = WithLoss()
        optimizer = simulator.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        executor = simulator.trainingModel(model, options_of(rank, reduction), optimizer)
        losses = [executor(share_of(rank)).item() for _ in range(3)]
        results.put((rank, losses, {name: value.tolist() for name, value in model.state_dict().items()}))
    finally:
        torch.distributed.destroy_process_group()


def train_alone(reduction):
    model, losses = WithLoss(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scale = 0.25 if reduction == simulator.ReductionType.Mean else 1.0
    for _ in range(3):
        optimizer.zero_grad()
        parts = [[model(rows) for rows in share_of(rank).chunk(2)] for rank in range(NUM_PROCESSES)]
        (scale * sum(loss for of_process in parts for loss in of_process)).backward()
        optimizer.step()
        losses.append([of_process[-1].item() for of_process in parts])
    return losses, dict(model.named_parameters())


@pytest.mark.slow
@pytest.mark.parametrize("reduction", [simulator.ReductionType.Mean, simulator.ReductionType.Sum])
def test_processes_train_as_one_with_the_batches_of_all(tmp_path, reduction):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    meeting_point = f"file://{tmp_path}/meeting"
    processes = [
        context.Process(target=train, args=(rank, meeting_point, reduction, results)) for rank in range(NUM_PROCESSES)
    ]

    for process in processes:
        process.start()
    found = sorted(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0] * NUM_PROCESSES
    losses, weights = train_alone(reduction)
    for rank, own_losses, own_weights in found:
        torch.testing.assert_close(own_losses, [of_step[rank] for of_step in losses])
        for name, value in weights.items():
            torch.testing.assert_close(torch.tensor(own_weights[name]), value.detach())


def test_training_without_a_process_group_says_how_to_start():
    executor = simulator.trainingModel(WithLoss(), options_of(0, simulator.ReductionType.Mean))

    with pytest.raises(simulator.Error, match="Start the program with .*init_process_group"):
        executor(share_of(0))


def test_inference_needs_no_process_group():
    options = simulator.Options()
    options.Distributed.configureProcessId(1, NUM_PROCESSES)
    model = make_model()

    torch.testing.assert_close(simulator.inferenceModel(model, options)(share_of(1)), model(share_of(1)))
