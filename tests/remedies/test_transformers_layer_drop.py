"""LayerDrop, as models of transformers write it, is decided where its rate is 0."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

import porting

SOURCE = """
class Encoder(nn.Module):
    def __init__(self, layerdrop):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _layer in range(3)])
        self.layerdrop = layerdrop

    def forward(self, x):
        for layer in self.layers:
            dropout_probability = torch.rand([])
            if self.training and (dropout_probability < self.layerdrop):
                continue
            x = layer(x) + torch.rand([2]).sum() * 0
        return x
"""


@pytest.fixture
def encoder(monkeypatch):
    """Make the class, in a module of the library."""
    pytest.importorskip("transformers")
    module = types.ModuleType("transformers.models.sample.modeling_sample")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module).update(torch=torch, nn=nn)
    exec(SOURCE, vars(module))
    return module.Encoder


def test_no_layer_is_dropped_at_rate_0(encoder):
    torch.manual_seed(0)
    model = encoder(0.0)
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    expected = nn.functional.mse_loss(model(x), y).item()

    ported = porting.to_ipu(model, nn.MSELoss(), device="sim")
    _output, loss = ported(x, y)

    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert "layer-drop" in str(ported.report())


def test_another_rate_is_an_error_that_names_it(encoder):
    ported = porting.to_ipu(encoder(0.1), nn.MSELoss(), device="sim")

    with pytest.raises(porting.PortingError, match=r"(?s)C001.*LayerDrop at rate 0.1.*config.layerdrop = 0.0"):
        ported(torch.randn(8, 4), torch.randn(8, 4))
