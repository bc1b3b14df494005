"""A device that runs one captured model, and the settings of its optimizer."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.compiled.executable import CompiledExecutable
from porting.engines.compiled.step_program import build_programs
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import host_tensors
from porting.module_attributes import materialise_lazy_modules
from porting.structure import flatten_tensors
from tests.engines.interpreted_programs import interpret_programs


class Kind(NamedTuple):
    """The kind of an optimizer, of which the engine reads the name."""

    name: str


@dataclass(frozen=True)
class Settings:
    """The settings of one parameter group; those of plain SGD unless said otherwise."""

    kind: Kind = Kind("SGD2")
    learning_rate: float = 0.1
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    alpha: float = 0.99
    centered: bool = False
    max_weight_norm: float = math.inf
    use_tf_variant: bool = False
    loss_scaling: float = 1.0
    max_grad_norm: float = math.inf
    bias_correction: bool = True
    accum_type: torch.dtype = torch.float32
    first_order_type: torch.dtype = torch.float32
    second_order_type: torch.dtype = torch.float32


class Device:
    """A model captured on an example, with the device's state of it."""

    def __init__(
        self,
        model: nn.Module,
        *example: Any,
        loss: Optional[Callable[..., torch.Tensor]] = None,
        mode: str = "training",
        replicas: int = 1,
    ) -> None:
        self.graph = capture_step(model, example, loss=loss, mode=mode)
        self.executable = ReplayExecutable(self.graph)
        self.state = DeviceState.for_graph(self.graph, replicas=replicas)
        self.state.upload({host.name: host.tensor.detach() for host in host_tensors(model)})

    def run(self, *inputs: Any, settings: Any = None, names: Optional[Sequence[str]] = None, **plan: Any) -> List[Any]:
        """Run one call; with `settings` the parameters called `names`, or all of them, are trained."""
        tensors = flatten_tensors(inputs)
        narrowed = [tensor.to(info.dtype) for tensor, info in zip(tensors, self.graph.inputs)]
        trained = [info.name for info in self.graph.parameters] if names is None else list(names)
        return self.executable.run(
            self.state,
            narrowed,
            CallPlan(**plan),
            groups=() if settings is None else [settings],
            group_names=() if settings is None else [trained],
        )

    def weights(self) -> Dict[str, torch.Tensor]:
        """Give copies of the parameters."""
        return {name: tensor.detach().clone() for name, tensor in self.state.parameters.items()}

    def buffers(self) -> Dict[str, torch.Tensor]:
        """Give copies of the first replica's buffers."""
        return {name: tensor.clone() for name, tensor in self.state.buffers[0].items()}


_DEFAULT = Choice()


class Twins:
    """The same model on two devices: one replays it, the other runs its programs, interpreted.

    `findings` are those that the second reported.
    """

    def __init__(
        self,
        model: nn.Module,
        *example: Any,
        settings: Any = None,
        loss: Optional[Callable[..., torch.Tensor]] = None,
        mode: str = "training",
        choice: Choice = _DEFAULT,
        groups: Optional[Dict[str, Any]] = None,
        host: Optional[Dict[str, torch.Tensor]] = None,
        names: Optional[Sequence[Sequence[str]]] = None,
        **plan: Any,
    ) -> None:
        self.graph = capture_step(model, example, loss=loss, mode=mode)
        self.plan = CallPlan(**plan)
        self.settings = [] if settings is None else settings if isinstance(settings, list) else [settings]
        self.names = [[info.name for info in self.graph.parameters]] if names is None else [list(n) for n in names]
        self.names = self.names if self.settings else []
        self.findings: List[Any] = []
        request = BuildRequest(
            self.plan, tuple(self.settings), tuple(map(tuple, self.names)), choice, replica_groups=groups or {}
        )
        self.programs = build_programs(self.graph, request)
        self.replay = ReplayExecutable(self.graph)
        self.compiled = CompiledExecutable(
            self.graph,
            dataclasses.replace(request, report=self.findings.append),
            self.programs.layout,
            interpret_programs(self.programs),
            lambda: ReplayExecutable(self.graph),
        )
        self.states = [self._state(model, groups or {}, host) for _ in range(2)]

    def _state(self, model: nn.Module, groups: Dict[str, Any], host: Any) -> DeviceState:
        state = DeviceState.for_graph(self.graph, replicas=self.plan.replicas, groups=groups)
        state.upload({found.name: found.tensor.detach() for found in host_tensors(model)} if host is None else host)
        state.rng_state = torch.Generator().manual_seed(1).get_state()
        return state

    @property
    def layout(self) -> Any:
        """How calls use the programs."""
        return self.programs.layout

    def call(self, *inputs: Any, settings: Any = None, **changes: Any) -> List[List[torch.Tensor]]:
        """Run a call on both devices, with a plan that may be changed; return the results of each."""
        groups = self.settings if settings is None else settings if isinstance(settings, list) else [settings]
        plan = replace(self.plan, **changes) if changes else self.plan
        tensors = [tensor.to(info.dtype) for tensor, info in zip(flatten_tensors(inputs), self.graph.inputs)]
        return [
            executable.run(state, tensors, plan, groups=groups, group_names=self.names)
            for executable, state in zip((self.replay, self.compiled), self.states)
        ]

    def assert_equal(self, *, tolerance: float = 1e-5) -> None:
        """Compare all that the devices hold."""
        one, other = self.states
        for kind in ("parameters", "buffers", "slots", "rng_state"):
            torch.testing.assert_close(
                getattr(other, kind), getattr(one, kind), rtol=tolerance, atol=tolerance, equal_nan=True, msg=kind
            )

    def assert_same(self, *inputs: Any, tolerance: float = 1e-5, **call: Any) -> None:
        """Run a call on both devices and compare its results, and all that the devices hold then."""
        expected, found = self.call(*inputs, **call)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        self.assert_equal(tolerance=tolerance)


@pytest.fixture(scope="session")
def twins() -> Callable[..., Twins]:
    """Give the class of twins: `twins(model, *example, settings=..., loss=..., choice=..., accumulation=...)`."""
    return Twins


@pytest.fixture(scope="session")
def device() -> Callable[..., Device]:
    """Give the class of devices: `device(model, *example, loss=..., mode=..., replicas=...)`."""
    return Device


@pytest.fixture(scope="session")
def settings() -> Callable[..., Settings]:
    """Give a function that makes the settings of an optimizer of the named kind."""

    def settings(kind: str = "SGD2", **values: Any) -> Settings:
        return Settings(kind=Kind(kind), **values)

    return settings


@pytest.fixture(scope="session")
def assert_trains_like_eager() -> Callable[..., None]:
    """Give a function that trains a model for two steps on the device and eagerly, and compares everything."""
    return _assert_trains_like_eager


def _assert_trains_like_eager(
    make: Callable[[], nn.Module],
    *args: Any,
    loss: Optional[Callable[..., torch.Tensor]] = None,
    tolerance: float = 1e-6,
) -> None:
    """Without `loss` the last output of the model is its loss; the last of `args` is the label otherwise."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(make())
        materialise_lazy_modules(models[-1], args if loss is None else args[:-1], {})
    on_device, eager = Device(models[0], *args, loss=loss), models[1]
    on_device.state.rng_state = torch.Generator().manual_seed(1).get_state()
    optimizer = torch.optim.SGD([p for p in eager.parameters() if p.requires_grad], 0.1, momentum=0.9)
    torch.manual_seed(1)
    for _ in range(2):
        found = on_device.run(*args, settings=Settings(momentum=0.9))
        expected = _eager_step(eager, optimizer, copy.deepcopy(args), loss)
        _assert_equal(found[: len(expected)], expected, tolerance)
    hosts = {host.name: host.tensor for host in host_tensors(eager)}
    state = {**on_device.weights(), **on_device.buffers()}
    # integers are constants on the device
    state = {name: value for name, value in state.items() if value.is_floating_point()}
    _assert_equal(list(state.values()), [hosts[name] for name in state], tolerance)


def _eager_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, loss: Optional[Callable[..., torch.Tensor]]
) -> List[torch.Tensor]:
    outputs = flatten_tensors(model(*args) if loss is None else model(*args[:-1]))
    value = outputs[-1] if loss is None else loss(outputs[0], args[-1])
    optimizer.zero_grad()
    value.backward(torch.ones_like(value))
    optimizer.step()
    return outputs if loss is None else [*outputs, value]


def _assert_equal(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], tolerance: float) -> None:
    torch.testing.assert_close(
        [tensor.detach().double() for tensor in found],
        [tensor.detach().double() for tensor in expected],
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
    )
