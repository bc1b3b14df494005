"""The search without a captured step: plain PyTorch on the host, as on an IPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.adapters import Backend
from porting.engines.calls.group_settings import GroupSettings, OptimizerKind
from porting.nan_search import HostTraining, NotFiniteError, find_not_finite_on_host


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


def search(model: nn.Module, *micro_batches: torch.Tensor, trains: bool = True, **settings: Any) -> Any:
    """Search one step of plain gradient descent, of which `settings` are those that matter."""
    values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = list(model.named_modules())
    of_group = {"kind": OptimizerKind.SGD2, "learning_rate": 0.1, **settings}

    def descend(parameters: Any) -> None:
        with torch.no_grad():
            for parameter in parameters.values():
                parameter -= of_group["learning_rate"] * parameter.grad
                parameter.grad = None

    training = HostTraining(
        find_loss=lambda output: output.square().mean(),
        update=descend,
        groups=[GroupSettings(**of_group)],
        group_names=[[name for name, _parameter in model.named_parameters()]],
        slots={},
    )
    step = [((x,), {}) for x in micro_batches]
    return find_not_finite_on_host(
        model, [step, step], names=names, values=values, training=training if trains else None
    )


def test_a_function_of_the_forward_pass_is_named() -> None:
    fault = search(make_model(Log()), torch.randn(8, 4))

    assert (fault.phase, fault.module_path, fault.operator.name) == ("forward", "3", "torch.log")
    assert fault.place.file == __file__


def test_a_function_of_the_backward_pass_is_named() -> None:
    fault = search(make_model(Root()), torch.randn(8, 4))

    assert (fault.phase, fault.module_path) == ("backward", "3")
    assert fault.operator.name.endswith("sqrt")


def test_inference_has_no_backward_pass() -> None:
    assert search(make_model(Root()), torch.randn(8, 4), trains=False) is None
    assert search(make_model(Log()), torch.randn(8, 4), trains=False).operator.name == "torch.log"


def test_nothing_changes() -> None:
    model = make_model(Root())
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()

    search(model, torch.randn(8, 4, generator=torch.Generator()))

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_the_micro_batch_is_counted() -> None:
    fault = search(make_model(nn.Tanh()), torch.randn(8, 4), torch.full((8, 4), float("nan")))

    assert (fault.phase, fault.step, fault.micro_batch) == ("before", 1, 2)


def test_a_parameter_is_named_that_the_update_makes_infinite() -> None:
    fault = search(make_model(nn.Tanh()), torch.randn(8, 4), learning_rate=1e39)

    assert (fault.phase, fault.name, fault.operator.name) == ("update", "0.weight", "SGD2")
    assert [value.name for value in fault.inputs] == ["weight 0.weight", "gradient"]
    assert all(value.is_finite for value in fault.inputs)


def test_the_second_step_begins_with_the_weights_of_the_first() -> None:
    fault = search(make_model(nn.Tanh()), torch.randn(8, 4), learning_rate=1e30)

    assert (fault.phase, fault.step) == ("forward", 2)


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


# -- ports whose device shows nothing, as an IPU -----------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=3e38, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, eps=0.0),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, eps=0.0),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, eps=0.0),
}
SETTINGS = {
    "one micro-batch": {},
    "accumulation": {"micro_batch": 2, "accumulation": 2},
    "several steps": {"micro_batch": 2, "device_iterations": 2},
    "replicas": {"micro_batch": 2, "replicas": 2},
}


class Scale(nn.Module):
    """A layer that lets little through, or nothing."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def make_port(optimizer: str, factor: float = 0.0, **options: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Scale(factor), nn.Linear(4, 3))
    made = OPTIMIZERS[optimizer](model.parameters())
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=made, options=PortOptions(**options), device="sim")


def make_batch() -> Any:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 4, generator=generator), torch.randint(3, (4,), generator=generator)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("num_calls", [0, 1])
def test_the_host_finds_what_the_simulator_finds_in_the_update(
    optimizer: str, settings: Any, num_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmful = {"lr": 3e38} if optimizer == "SGD" else {"eps": 0.0}
    found = []
    for hides in (False, True):
        ported = make_port(optimizer, 1e3 if optimizer == "SGD" else 0.0, **settings)
        (group,) = ported.port_optimizer.given.param_groups
        for _ in range(num_calls):
            group.update(lr=1e-3, eps=1e-8)
            ported(*make_batch())
        group.update(harmful)
        with monkeypatch.context() as patched:
            if hides:
                patched.setattr("porting.api.nan_search.rehearse", lambda *_arguments: None)
            fault = ported.find_nan(make_batch())
        found.append(fault.replace(ran_on="", place=None))

    assert found[0].phase == "update"
    assert found[1] == found[0]


def test_a_search_of_the_update_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> Any:
        ported = make_port("Adam", 1.0)
        losses = []
        for _ in range(3):
            monkeypatch.setattr("porting.api.nan_search.rehearse", lambda *_arguments: None)
            assert ported.find_nan(make_batch()) is None
            losses.append(ported(*make_batch())[1].item())
        return losses

    plain = make_port("Adam", 1.0)

    assert train() == [plain(*make_batch())[1].item() for _ in range(3)]
