"""Keep the buffers that replicas have of their own while other executables have the device, or there is none.

The host sees those of the first replica, and what it sends to a device reaches all replicas. After an inference, a
`destroy()` or a checkpoint the others would go on with statistics that are not theirs. Runners and checkpoints use it.
"""

from __future__ import annotations

import weakref
from typing import Dict, List, Mapping, MutableMapping, Optional, Protocol

import torch
from torch import nn

from porting.adapters.backend_protocol import BackendOptimizer, Executor
from porting.adapters.backends import Backend
from porting.diagnostics import Finding, Severity, caller_place
from porting.host_tensors import are_same_bytes, host_tensors
from porting.options import PortOptions
from porting.torch_insides.modes import DisableTorchFunctionSubclass
from porting.torch_insides.modules import NORMS_WITH_STATE

__all__ = [
    "give_replica_buffers",
    "keep_replica_buffers",
    "load_replica_buffers",
    "save_replica_buffers",
    "send_optimizer",
]

_Rows = Dict[str, List[torch.Tensor]]

_ENTRY = "replicas"


class _Port(Protocol):
    """What is asked of a port."""

    @property
    def model(self) -> nn.Module:
        """The user's model."""

    @property
    def wrapped(self) -> nn.Module:
        """The model with its loss."""

    @property
    def options(self) -> PortOptions:
        """What the user chose."""

    @property
    def backend(self) -> Backend:
        """Where it runs."""


class _Findings(Protocol):
    """What the port has to say."""

    def say(self, finding: Finding) -> None:
        """Say one."""


# by the user's model; None where a device does not tell them
_KEPT: MutableMapping[nn.Module, Optional[_Rows]] = weakref.WeakKeyDictionary()


def keep_replica_buffers(port: _Port, executor: Executor, *, has_trained: bool = True) -> None:
    """Keep the buffers of all replicas of an executor that `has_trained` and is attached: the host's replace them."""
    if not has_trained or port.options.replicas == 1 or port.model in _KEPT or not executor.isAttachedToDevice():
        return  # what is kept is given before the next step
    is_simulated = port.backend.compiled_step(executor) is not None
    _KEPT[port.model] = executor.device_session.read_replica_buffers() if is_simulated else None


def save_replica_buffers(port: _Port, executor: Optional[Executor]) -> Dict[str, Optional[_Rows]]:
    """Return an entry for a checkpoint with the buffers of all replicas, None where a device does not tell them."""
    if port.options.replicas == 1:
        return {}
    is_kept = port.model in _KEPT
    if executor is not None:
        keep_replica_buffers(port, executor)
    kept = _KEPT.get(port.model, {})
    if not is_kept:
        _KEPT.pop(port.model, None)
    return {_ENTRY: kept}


def load_replica_buffers(port: _Port, saved: Mapping[str, Optional[_Rows]]) -> None:
    """Let the replicas go on with those of a checkpoint, whose weights the model has got."""
    _KEPT.pop(port.model, None)
    if _ENTRY in saved:
        _KEPT[port.model] = saved[_ENTRY]


def send_optimizer(port: _Port, executor: Executor, optimizer: BackendOptimizer) -> None:
    """Hand a state over that was loaded into the device's optimizer: with it the device gets the host's buffers."""
    if getattr(optimizer, "ipu_state_is_dirty", False) and executor.isAttachedToDevice():
        keep_replica_buffers(port, executor)
        executor.setOptimizer(optimizer)


def give_replica_buffers(port: _Port, findings: _Findings, executor: Executor) -> None:
    """Give an executor that is about to train what was kept, but for buffers that the host has written to since.

    A machine with IPUs neither tells nor takes those of the other replicas, which is said (P011), and so is another
    number of replicas.
    """
    if port.model not in _KEPT:
        return
    kept = _KEPT.pop(port.model)
    if kept and any(len(rows) != port.options.replicas for rows in kept.values()):
        kept = None
    if kept is None and _has_own_buffers(port):
        findings.say(_make_finding())
    if not kept:
        return
    if not executor.isAttachedToDevice():
        # it would do so itself in the call, and take the host's
        executor.attachToDevice()
    with DisableTorchFunctionSubclass():
        hosts = {host.name: host.tensor.detach() for host in host_tensors(port.wrapped)}
        executor.device_session.write_replica_buffers(_select_unwritten(kept, hosts))


def _select_unwritten(kept: _Rows, hosts: Mapping[str, torch.Tensor]) -> _Rows:
    return {
        name: rows
        for name, rows in kept.items()
        if name in hosts and are_same_bytes(hosts[name], rows[0].to(hosts[name].dtype))
    }


def _has_own_buffers(port: _Port) -> bool:
    norms = [part for part in port.model.modules() if isinstance(part, NORMS_WITH_STATE)]
    return not port.options.broadcast_buffers or any(norm.track_running_stats and norm.training for norm in norms)


def _make_finding() -> Finding:
    return Finding(
        "P011",
        message="the replicas go on with the running statistics of the first one",
        severity=Severity.WARNING,
        place=caller_place(),
        notes=("since the last step the device has got the host's buffers, as after an inference or a checkpoint",),
        help="evaluate after the training, or take a layer without running statistics (`GroupNorm`)",
    )
