"""A step that is compiled is looked at closely where the bound does not fit, and told with the first remedy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions, memory_report, to_ipu
from porting.capture import capture_step
from porting.models import gpt
from porting.planning.compiled_look import bound_bytes, note_memory
from porting.planning.memory_look import count_bytes_per_weight


def capture_linear_steps(rows, *, width=1024):
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(*[nn.Linear(width, width), nn.ReLU()] * 8)
    batch = [torch.zeros(rows, width), torch.zeros(rows, width)]
    return capture_step(model, batch, loss=nn.MSELoss(), mode="training")


def test_a_step_that_fits_has_no_finding():
    assert note_memory(capture_linear_steps(4, width=8), PortOptions(), None) is None


def test_a_step_that_does_not_fit_is_told_with_a_smaller_micro_batch():
    finding = note_memory(capture_linear_steps(16384), PortOptions(), None)

    assert finding.code == "M001"
    assert "micro_batch=1" in finding.help[0]


def test_a_larger_machine_has_room_for_more():
    graph = capture_linear_steps(4096)

    assert note_memory(graph, PortOptions(), None, target="gc2").code == "M001"
    assert note_memory(graph, PortOptions(), None, target="bow") is None


# -- the bound ---------------------------------------------------------------------------------------------------------


def ported_lstm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    return Model(), nn.CrossEntropyLoss(), (torch.zeros(16, 50, 32), torch.zeros(16, dtype=torch.int64))


def ported_gpt():
    model = gpt.build("small", num_layers=2, width=64, num_heads=4, length=128, vocabulary=256)
    tokens = torch.zeros(8, 128, dtype=torch.int64)
    return model, gpt.loss, (tokens, tokens)


def ported_net():
    layers = (nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(5))
    return nn.Sequential(*layers), nn.CrossEntropyLoss(), (torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("make", [ported_lstm, ported_gpt, ported_net])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_the_bound_is_above_the_estimate(make, optimizer):
    model, loss, batch = make()
    model(*batch[:1])
    ported = to_ipu(model, loss, optimizer=optimizer(model.parameters(), lr=0.1), device="sim", options=PortOptions())
    ported.compile(*batch)
    graph = ported.device_executor.device_session.compiled.graph

    bound = bound_bytes(graph, num_stages=1, bytes_per_weight=count_bytes_per_weight(ported.optimizer))

    assert bound >= memory_report(ported, batch).bytes_per_ipu
