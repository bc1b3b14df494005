"""Describe the host's side of an executor to a compilation: `describe_host` lists its tensors and optimizer.

The device session passes it to the compilation.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import torch
from torch import nn

from ...engines.calls.device_state import DeviceState
from .._compile.executables import HostSide
from .._optimizer.device_optimizer import DeviceOptimizer, name_parameters
from .._weights.host_weights import fetch_other_owners, read_plain_views
from .._weights.replica_parameters import PerReplicaParams
from .._weights.weight_owners import Owner

__all__ = ["describe_host"]


def describe_host(
    user_model: nn.Module, owner: Optional[Owner], optimizer: DeviceOptimizer, per_replica: PerReplicaParams
) -> HostSide:
    """Return the optimizer and the weights of `user_model`, which are read only on request.

    `owner` is a training executor's hold on the model; without one it is inference.
    """

    def read_weights() -> Mapping[str, torch.Tensor]:
        fetch_other_owners(user_model, owner)
        return read_plain_views(user_model)

    def read_groups(state: DeviceState) -> Any:
        return optimizer.list_groups(state, name_parameters(user_model)) if owner is not None else ((), ())

    return HostSide(
        is_training=owner is not None,
        optimizer_type=optimizer.settings.get("optimizer_type"),
        optimizer_groups=read_groups,
        optimizer_names=lambda: optimizer.list_names(user_model),
        weights=read_weights,
        per_replica=per_replica,
    )
