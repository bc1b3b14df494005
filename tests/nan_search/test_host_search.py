"""The search without a captured step: plain PyTorch on the host, as on an IPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.adapters import Backend
from porting.nan_search import NotFiniteError, find_not_finite_on_host


class Root(nn.Module):
    """A layer whose derivative at zero is infinite."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x.sqrt(), torch.zeros_like(x))


class Log(nn.Module):
    """A layer that is not defined for every number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x)


def make_model(layer: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), layer, nn.Linear(4, 3))


def search(model: nn.Module, x: torch.Tensor, **settings: Any) -> Any:
    values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = list(model.named_modules())
    settings = {"find_loss": lambda output: output.square().mean(), **settings}
    return find_not_finite_on_host(model, (x,), {}, names=names, values=values, **settings)


def test_a_function_of_the_forward_pass_is_named() -> None:
    fault = search(make_model(Log()), torch.randn(8, 4))

    assert (fault.phase, fault.module_path, fault.operator.name) == ("forward", "3", "torch.log")
    assert fault.place.file == __file__


def test_a_function_of_the_backward_pass_is_named() -> None:
    fault = search(make_model(Root()), torch.randn(8, 4))

    assert (fault.phase, fault.module_path) == ("backward", "3")
    assert fault.operator.name.endswith("sqrt")


def test_inference_has_no_backward_pass() -> None:
    assert search(make_model(Root()), torch.randn(8, 4), find_loss=None) is None
    assert search(make_model(Log()), torch.randn(8, 4), find_loss=None).operator.name == "torch.log"


def test_nothing_changes() -> None:
    model = make_model(Root())
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()

    search(model, torch.randn(8, 4, generator=torch.Generator()))

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_a_port_whose_device_shows_nothing_is_searched_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "compiled_step", lambda _self, _executor: None)
    ported = to_ipu(make_model(Log()), nn.CrossEntropyLoss(), device="sim")
    batch = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)

    fault = ported.find_nan(batch)

    assert (fault.module_path, fault.operator.name) == ("3", "torch.log")
    assert "plain PyTorch on the host" in fault.ran_on


def test_debug_nan_finds_it_from_the_weights_of_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "compiled_step", lambda _self, _executor: None)
    options = PortOptions(debug_nan=True)
    ported = to_ipu(make_model(Log()), nn.CrossEntropyLoss(), options=options, device="sim")

    with pytest.raises(NotFiniteError, match="`torch.log` of the forward pass"):
        ported(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64))
