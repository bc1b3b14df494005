"""The eager side is plain PyTorch at its best, and the same arithmetic whatever it chooses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from porting import PortOptions
from porting.bench.eager import EagerSide, make_best_optimizer
from porting.bench.workloads import Workload

from .conftest import make_workload


def losses_of(side: EagerSide, *, calls: int = 3) -> torch.Tensor:
    return torch.stack([torch.stack(side.call()).mean() for _ in range(calls)])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_the_optimizer_is_fused_and_has_the_same_settings(kind):
    optimizer = kind([nn.Parameter(torch.zeros(2))], lr=0.125, weight_decay=0.5)

    made, described = make_best_optimizer(optimizer)

    assert described == f"{kind.__name__} fused"
    assert made.param_groups[0]["fused"] is True
    assert (made.param_groups[0]["lr"], made.param_groups[0]["weight_decay"]) == (0.125, 0.5)


def test_a_state_that_is_there_goes_on():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    parameter.grad = torch.ones(2)
    optimizer.step()

    made, _ = make_best_optimizer(optimizer)

    assert made.state[parameter]["momentum_buffer"].tolist() == [1.0, 1.0]


def test_training_leaves_the_workload_alone():
    workload = make_workload()
    before = [parameter.clone() for parameter in workload.model.parameters()]

    EagerSide(workload).call()

    assert all(torch.equal(one, other) for one, other in zip(before, workload.model.parameters()))


def test_an_accumulated_step_is_one_step_on_the_larger_batch():
    large, cut = make_workload(), make_workload(PortOptions(engine="replay", accumulation=4))

    torch.testing.assert_close(losses_of(EagerSide(cut)), losses_of(EagerSide(large)))


def test_the_memory_format_changes_no_loss():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    workload = Workload(model, nn.CrossEntropyLoss(), (torch.randn(2, 2, 4, 4), torch.tensor([0, 2])))
    plain, channels_last = EagerSide(workload), EagerSide(workload, memory_format="channels-last")

    torch.testing.assert_close(losses_of(channels_last), losses_of(plain))
    assert channels_last.model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_autocast_is_used_when_asked_for():
    side = EagerSide(make_workload(), precision="bfloat16")

    assert "autocast to bfloat16" in side.described
    torch.testing.assert_close(losses_of(side), losses_of(EagerSide(make_workload())), rtol=0.05, atol=0.05)


def test_a_model_that_returns_its_loss_needs_none():
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            output = self.layer(x)
            return output, output.square().mean()

    workload = Workload(WithLoss(), None, torch.randn(4, 3))

    assert losses_of(EagerSide(workload)).shape == (3,)


def test_without_an_optimizer_it_is_the_devices_default():
    workload = Workload(nn.Linear(3, 2), nn.CrossEntropyLoss(), (torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)))

    assert EagerSide(workload).optimizer.param_groups[0]["lr"] == 0.01


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_plain_process_loads_nothing_of_the_simulator():
    program = "import porting.bench.eager, porting.bench.workloads, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert [name for name in loaded if name.startswith(("porting.simulator", "porting.api", "porting.capture"))] == []
