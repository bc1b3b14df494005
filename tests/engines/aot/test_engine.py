"""The compiling engines refuse what their programs could not do, before a compiler runs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.aot.engine import AOT
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.contract.failures import NotCompilable
from porting.engines.contract.limits import CompileLimits


class LongRecurrent(nn.Module):
    """An LSTM over more steps than are written out."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x):
        return self.recurrent(x)[0][:, -1]


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the kernel is one of oneDNN")
def test_a_long_lstm_is_refused_with_the_reason(settings, tmp_path):
    example = [torch.ones(2, 100, 3), torch.zeros(2, dtype=torch.long)]
    graph = capture_step(LongRecurrent(), example, loss=F.cross_entropy, mode="training")
    names = tuple(info.name for info in graph.parameters)
    request = BuildRequest(CallPlan(), groups=(settings("SGD2"),), group_names=(names,))

    with pytest.raises(NotCompilable, match="a long LSTM .* which the engine `aot` cannot call"):
        AOT.compile(graph, request, tmp_path, limits=CompileLimits())

    assert not any(tmp_path.iterdir())


def test_a_torch_whose_compiler_is_not_known_costs_no_time(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "__version__", "2.11.0+cpu")

    with pytest.raises(NotCompilable, match=r"by torch 2\.13 and later, and this is 2\.11\.0"):
        AOT.compile(None, BuildRequest(CallPlan()), tmp_path, limits=CompileLimits())

    assert not list(tmp_path.iterdir())
