"""The run of a port: what its loop does, what the device had in each call, and what of it is kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

import porting
from porting import PortedTraining, PortOptions
from porting.verify.calls import Calls
from porting.verify.ported_run import can_match_streams, find_outputs, find_stream, run_ported

X, Y = torch.linspace(-1, 1, 48).view(8, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


def make(*, scheduler=None, **options):
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings = PortOptions(**{"keep_gradients": True, "output_mode": "all", **options})
    ported = porting.to_ipu(model, F.cross_entropy, optimizer=optimizer, options=settings, device="sim")
    return PortedTraining(ported, None if scheduler is None else ported.scheduler(scheduler(optimizer)))


def run(ported, num_calls=3):
    return run_ported(ported, Calls([((X, Y), {})] * num_calls), seed=0)


def test_losses_lie_by_step_and_micro_batch():
    record = run(make(micro_batch=2, accumulation=2, device_iterations=2))

    assert record.num_steps == 6
    assert [len(record.losses[step]) for step in range(1, 7)] == [2] * 6


def test_losses_of_the_last_micro_batch_alone_belong_to_the_last_step():
    record = run(make(micro_batch=2, accumulation=2, device_iterations=2, output_mode="final", keep_gradients=False), 1)

    assert record.losses[1] == []
    assert len(record.losses[2]) >= 1


def test_rates_are_those_that_the_device_had():
    record = run(make(scheduler=lambda optimizer: StepLR(optimizer, 1, 0.5)))

    assert [record.rates[step][0] for step in (1, 2, 3)] == [0.1, 0.05, 0.025]


def test_settings_are_those_that_the_device_had():
    record = run(make(), 1)

    assert record.settings[1]["weight"]["momentum"] == 0.9


def test_a_port_that_is_compiled_anew_is_followed():
    ported = make()
    rates = iter([0.1, 0.2, 0.3])

    def call(port, *args):
        port.destroy()
        port.port_optimizer.require_users().param_groups[0]["lr"] = next(rates)
        return port(*args)

    ported.model.compile(X, Y)
    record = run(PortedTraining(ported.model, call=call))

    assert [record.rates[step][0] for step in (1, 2, 3)] == [0.1, 0.2, 0.3]


def test_what_is_kept_has_the_users_names():
    record = run(make(), 1)

    assert set(record.sketches["parameter", 1]) == set(record.sketches["gradient", 1]) == {"weight", "bias"}
    assert "momentum_buffer of weight" in record.sketches["optimizer state", 1]
    assert ("output", 1) in record.sketches


def test_outputs_of_some_micro_batches_are_none():
    ported = make(micro_batch=2, accumulation=4, output_mode="final", keep_gradients=False)
    returned = ported.model(X, Y)

    assert find_outputs(ported.model, returned) is None


@pytest.mark.parametrize("error", [ValueError("no more"), KeyboardInterrupt()])
def test_what_ends_a_run_is_told(error):
    calls = []

    def call(port, *args):
        calls.append(args)
        if len(calls) == 3:
            raise error
        return port(*args)

    record = run(PortedTraining(make().model, call=call))

    assert record.num_steps == 2
    assert record.ended_by.startswith(type(error).__name__)


def test_the_simulator_draws_from_torchs_stream():
    ported = make(seed=7)

    assert can_match_streams(ported.model)
    assert torch.equal(find_stream(ported.model), torch.Generator().manual_seed(7).get_state())
    assert find_stream(make().model) is None
