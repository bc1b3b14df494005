"""Save and load all that a training consists of; the losses that follow are the same bit for bit.

`ported.save` and `ported.load` use it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Union

import torch

from .. import adapters
from ..adapters.optimizer_state import to_device_state
from ..adapters.replica_buffers import load_replica_buffers, save_replica_buffers
from ..diagnostics import CheckpointError, Finding, caller_place, notify
from ..support.process import this_instance
from .optimizer import PortOptimizer
from .port import Port
from .runners import Runners

if TYPE_CHECKING:
    from ..adapters import Checkpoint
    from ..adapters.checkpoints import Path

__all__ = ["load_training", "save_training"]

# odd and without a pattern, as the simulator's own distance between the streams of its processes
_INSTANCE_DISTANCE = 0x9E3779B97F4A7C15


def save_training(
    port: Port,
    optimizer: PortOptimizer,
    runners: Runners,
    path: Path,
    *,
    schedulers: Sequence[Any] = (),
    loader: object = None,
    step: Optional[int] = None,
    epoch: Optional[int] = None,
    extra: object = None,
    loop: Optional[Mapping[str, Any]] = None,
) -> None:
    """Write a checkpoint from which `load_training` goes on exactly: all of it, or the old file stays.

    It holds the weights, the optimizer with its state on the device, the schedulers connected by `ported.scheduler` and
    those handed over, the buffers of all replicas, and the random streams: the device's, torch's, Python's and NumPy's,
    and those of `loader`.
    `step` is by default the number of optimizer steps so far; `epoch` and `extra` are the caller's, `loop` is `fit`'s.

    The file is one of `save_checkpoint`. Raises OptionError P002 for what no checkpoint holds.
    """
    # without functions, which a scheduler has from its own constructor
    states = [
        {name: value for name, value in scheduler.state_dict().items() if not callable(value)}
        for scheduler in optimizer.list_schedulers(schedulers)
    ]
    optimizer_state = optimizer.state_dict()
    streams = {name: json.dumps(words) for name, words in runners.read_random_states().items()}
    device = {"optimizer": _read_own_state(port, optimizer, optimizer_state), "random": streams}
    training = {
        "epoch": epoch,
        "instance": this_instance().index,
        "device": {**device, **save_replica_buffers(port, runners.training.executor)},
        "schedulers": states,
        "streams": adapters.read_streams(loader),
        "loop": loop,
    }
    adapters.save_checkpoint(
        path,
        model=adapters.plain_state_dict(port.model),
        optimizer=optimizer_state,
        scheduler=states[0] if len(states) == 1 else None,
        step=optimizer.num_steps if step is None else step,
        extra=extra,
        training=training,
    )


def load_training(
    port: Port,
    optimizer: PortOptimizer,
    runners: Runners,
    checkpoint: Union[Path, Checkpoint],
    *,
    schedulers: Sequence[Any] = (),
    loader: object = None,
) -> Checkpoint:
    """Go on from a checkpoint, a path or one that was read, and return it.

    Connect schedulers before, and hand over the same as when it was saved. `loader`'s order is brought to where it was.
    A checkpoint of `save_checkpoint`, or a plain state dictionary, loads what it has. Raises CheckpointError: K001 for
    a damaged file, K002 for one of another model, optimizer or other schedulers; nothing was changed then. What is in
    the checkpoint but not in `loader`, or the other way round, is a warning (K004).
    """
    checkpoint = checkpoint if isinstance(checkpoint, adapters.Checkpoint) else adapters.load_checkpoint(checkpoint)
    training: Mapping[str, Any] = checkpoint.training or {}
    connected = optimizer.list_schedulers(schedulers)
    states = training.get("schedulers", [] if checkpoint.scheduler is None else [checkpoint.scheduler])
    _check_fits(optimizer, checkpoint, num_schedulers=(len(connected), len(states)))
    streams = {name: json.loads(words) for name, words in training.get("device", {}).get("random", {}).items()}
    if training and runners.is_ahead_of(streams):
        runners.destroy()
        optimizer.keep_state()
    adapters.load_weights(port.model, checkpoint)
    runners.send_weights()
    load_replica_buffers(port, training.get("device", {}))
    if checkpoint.optimizer is not None:
        _load_optimizer(port, optimizer, checkpoint.optimizer, training.get("device", {}).get("optimizer", {}))
    for scheduler, state in zip(connected, states):
        scheduler.load_state_dict(state)
    optimizer.num_steps = checkpoint.step or 0
    if training:
        saved_by = training["instance"]
        runners.set_random_states({name: _move_stream(words, saved_by) for name, words in streams.items()})
        missing = adapters.set_streams(training["streams"], loader)
        if missing:
            notes = tuple(f"`{name}` is not in both, the checkpoint and the loader" for name in missing)
            remedy = "make loader, dataset and options as they were when the checkpoint was written"
            notify(Finding("K004", place=caller_place(), notes=notes, help=remedy))
    return checkpoint


def _read_own_state(port: Port, optimizer: PortOptimizer, state: Mapping[str, Any]) -> Dict[str, torch.Tensor]:
    """Return what the device keeps of the optimizer and torch's `state` has no name for."""
    if optimizer.source is None:
        return {}
    of_torch = to_device_state(state, optimizer.source, port.wrapped)
    return {name: tensor for name, tensor in optimizer.read_device_state().items() if name not in of_torch}


def _load_optimizer(
    port: Port, optimizer: PortOptimizer, state: Mapping[str, Any], only_on_device: Mapping[str, torch.Tensor]
) -> None:
    if optimizer.source is None:
        on_device = optimizer.require()
        if state.get("ipu_state") is None:
            torch.optim.Optimizer.load_state_dict(on_device, dict(state))
        else:
            on_device.load_state_dict({**state, "ipu_param": {}})
        return
    # in torch's types
    optimizer.source.load_state_dict(dict(state))
    optimizer.follow_state()
    exact = to_device_state(state, optimizer.source, port.wrapped)
    if exact or only_on_device:
        optimizer.set_device_state({**optimizer.read_device_state(), **exact, **only_on_device})


def _check_fits(optimizer: PortOptimizer, checkpoint: Checkpoint, *, num_schedulers: Sequence[int]) -> None:
    """Refuse (K002) a checkpoint with other parameter groups or other schedulers before anything is changed."""
    differences = []
    if checkpoint.optimizer is not None:
        here = [len(group["params"]) for group in optimizer.require_users().param_groups]
        there = [len(group["params"]) for group in checkpoint.optimizer["param_groups"]]
        if here != there:
            differences.append(f"parameters in each group of the optimizer: {there} instead of {here}")
    here_num, there_num = num_schedulers
    if here_num != there_num and (checkpoint.training is not None or here_num):
        differences.append(f"schedulers: {there_num} instead of {here_num}")
    if differences:
        raise CheckpointError.at_caller(
            "K002",
            message="the checkpoint does not fit the training; nothing was loaded",
            notes=tuple(differences),
            help="make optimizer and schedulers as they were, and connect them (`ported.scheduler`) before loading",
        )


def _move_stream(words: List[int], saved_by: int) -> List[int]:
    """Give another instance than the one that saved a stream of its own: all would drop the same units."""
    distance = this_instance().index - saved_by
    return [(sum(words) + distance * _INSTANCE_DISTANCE) % 2**32] if distance else words
