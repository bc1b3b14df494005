"""A device that runs one captured model, and the settings of its optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import pytest
import torch
from torch import nn

from porting.capture import capture_step, flatten_tensors
from porting.capture.module_state import host_tensors
from porting.engines.call_plan import CallPlan
from porting.engines.device_state import DeviceState
from porting.engines.replay import ReplayExecutable


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
