"""All that a training consists of, saved and loaded: with it the losses that follow are the same bit for bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import torch

from ..adapters import Checkpoint, load_checkpoint, notify, save_checkpoint
from ..adapters.loader_position import read_streams, set_streams
from ..adapters.optimizer_state import to_device_state
from ..diagnostics import CheckpointError, Finding, caller_place
from ..support.process import this_instance
from .executors import optimizer_of
from .parts import Parts

if TYPE_CHECKING:
    from .ported_model import PortedModel

__all__ = ["load_training", "save_training", "say_it_is_not_exact"]

# odd and without a pattern, as the simulator's own distance between the streams of its processes
_INSTANCE_DISTANCE = 0x9E3779B97F4A7C15


def save_training(
    ported: PortedModel,
    path: Any,
    *,
    schedulers: Sequence[Any] = (),
    loader: Any = None,
    step: Optional[int] = None,
    epoch: Optional[int] = None,
    extra: Any = None,
    loop: Optional[Mapping[str, Any]] = None,
) -> None:
    """Write a checkpoint from which `load_training` goes on exactly: all of it, or the old file stays.

    It holds the weights, the optimizer with its state on the device, the schedulers connected by `ported.scheduler` and
    those handed over, and the random streams: the device's, torch's, Python's and NumPy's, and those of `loader`.
    `step` is by default the number of optimizer steps so far; `epoch` and `extra` are the caller's, `loop` is `fit`'s.

    The file is one of `save_checkpoint`. Raises OptionError P002 for what no checkpoint holds.
    """
    parts = ported._parts
    states = [_plain_scheduler(scheduler) for scheduler in _schedulers(parts, schedulers)]
    optimizer = ported.optimizer_state_dict()
    training = {
        "epoch": epoch,
        "instance": this_instance().index,
        "device": {"optimizer": _only_on_device(parts, optimizer), "random": _device_streams(ported)},
        "schedulers": states,
        "streams": read_streams(loader),
        "loop": loop,
    }
    save_checkpoint(
        path,
        model=ported.state_dict(),
        optimizer=optimizer,
        scheduler=states[0] if len(states) == 1 else None,
        step=parts.num_steps if step is None else step,
        extra=extra,
        training=training,
    )


def load_training(
    ported: PortedModel, checkpoint: Any, *, schedulers: Sequence[Any] = (), loader: Any = None
) -> Checkpoint:
    """Go on from a checkpoint, a path or one that was read, and return it.

    Connect schedulers before, and hand over the same as when it was saved. `loader`'s order is brought to where it was.
    A checkpoint of `save_checkpoint`, or a plain state dictionary, loads what it has. Raises CheckpointError: K001 for
    a damaged file, K002 for one of another model, optimizer or other schedulers; nothing was changed then. What is in
    the checkpoint but not in `loader`, or the other way round, is a warning (K004).
    """
    parts = ported._parts
    checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else load_checkpoint(checkpoint)
    training: Mapping[str, Any] = checkpoint.training or {}
    connected = _schedulers(parts, schedulers)
    states = training.get("schedulers", [] if checkpoint.scheduler is None else [checkpoint.scheduler])
    _check_fits(parts, checkpoint, num_schedulers=(len(connected), len(states)))
    streams = {name: json.loads(words) for name, words in training.get("device", {}).get("random", {}).items()}
    if training:
        _drop_executors_ahead_of(ported, streams)
    ported.load_state_dict(checkpoint)
    if checkpoint.optimizer is not None:
        _load_optimizer(parts, checkpoint.optimizer, training.get("device", {}).get("optimizer", {}))
    for scheduler, state in zip(connected, states):
        scheduler.load_state_dict(state)
    parts.num_steps = checkpoint.step or 0
    if training:
        _set_device_streams(ported, streams, saved_by=training["instance"])
        missing = set_streams(training["streams"], loader)
        say_it_is_not_exact(f"`{name}` is not in both, the checkpoint and the loader" for name in missing)
    return checkpoint


def say_it_is_not_exact(reasons: Any) -> None:
    """Warn (K004) of what keeps the losses from being the same, if there is anything."""
    notes = tuple(reasons)
    if notes:
        notify(
            Finding(
                "K004",
                place=caller_place(),
                notes=notes,
                help="make loader, dataset and options as they were when the checkpoint was written",
            )
        )


def _schedulers(parts: Parts, handed_over: Sequence[Any]) -> List[Any]:
    """List the schedulers that are connected and those that are handed over, each once."""
    connected = [bridge for bridge in (reference() for reference in parts.bridges) if bridge is not None]
    known = {id(inner) for bridge in connected for inner in (bridge, bridge.scheduler)}
    return [*connected, *(scheduler for scheduler in handed_over if id(scheduler) not in known)]


def _plain_scheduler(scheduler: Any) -> Dict[str, Any]:
    """Return a scheduler's state without functions, which it has from its own constructor."""
    return {name: value for name, value in scheduler.state_dict().items() if not callable(value)}


def _only_on_device(parts: Parts, optimizer: Mapping[str, Any]) -> Dict[str, torch.Tensor]:
    """Return what the device keeps of the optimizer and torch's has no name for."""
    if not parts.has_counterpart or parts.torch_optimizer is None:
        return {}
    of_torch = to_device_state(optimizer, parts.torch_optimizer, parts.wrapped)
    on_device = parts.optimizer.state_dict().get("ipu_state") or {}
    return {name: tensor for name, tensor in on_device.items() if name not in of_torch}


def _load_optimizer(parts: Parts, state: Mapping[str, Any], only_on_device: Mapping[str, torch.Tensor]) -> None:
    if not parts.has_counterpart or parts.torch_optimizer is None:
        optimizer = optimizer_of(parts)
        if state.get("ipu_state") is None:
            torch.optim.Optimizer.load_state_dict(optimizer, dict(state))
        else:
            optimizer.load_state_dict({**state, "ipu_param": {}})
        return
    # the port hears of it and hands it to the device, in torch's types
    parts.torch_optimizer.load_state_dict(dict(state))
    device_state = parts.optimizer.state_dict().get("ipu_state") or {}
    exact = to_device_state(state, parts.torch_optimizer, parts.wrapped)
    if exact or only_on_device:
        parts.optimizer.set_state_dict({"ipu_state": {**device_state, **exact, **only_on_device}, "ipu_param": {}})


def _check_fits(parts: Parts, checkpoint: Checkpoint, *, num_schedulers: Sequence[int]) -> None:
    """Refuse (K002) a checkpoint with other parameter groups or other schedulers before anything is changed."""
    differences = []
    if checkpoint.optimizer is not None:
        own = optimizer_of(parts) if parts.torch_optimizer is None else parts.torch_optimizer
        here = [len(group["params"]) for group in own.param_groups]
        there = [len(group["params"]) for group in checkpoint.optimizer["param_groups"]]
        if here != there:
            differences.append(f"parameters in each group of the optimizer: {there} instead of {here}")
    here_num, there_num = num_schedulers
    if here_num != there_num and (checkpoint.training is not None or here_num):
        differences.append(f"schedulers: {there_num} instead of {here_num}")
    if differences:
        raise CheckpointError.of(
            "K002",
            message="the checkpoint does not fit the training; nothing was loaded",
            place=caller_place(),
            notes=tuple(differences),
            help="make optimizer and schedulers as they were, and connect them (`ported.scheduler`) before loading",
        )


# -- the device's random streams ---------------------------------------------------------------------------------------


def _device_streams(ported: PortedModel) -> Dict[str, str]:
    """Return seed and state of each executor's stream as text; one that has not begun has none."""
    streams = dict(ported._parts.random_states)
    for handle in ported._handles:
        words = None if handle.executor is None else handle.executor.rng_state
        if words is not None:
            streams[handle.record.name] = list(words)
    return {name: json.dumps(words) for name, words in streams.items()}


def _drop_executors_ahead_of(ported: PortedModel, streams: Mapping[str, Any]) -> None:
    """Drop the executors if one has drawn numbers already that at the time of the checkpoint had drawn none."""
    for handle in ported._handles:
        if handle.executor is not None and handle.record.name not in streams:
            if handle.executor.rng_state is not None:
                ported.destroy()
                return


def _set_device_streams(ported: PortedModel, streams: Mapping[str, List[int]], *, saved_by: int) -> None:
    own = {name: _words_of_this_instance(words, saved_by) for name, words in streams.items()}
    ported._parts.random_states = own
    for handle in ported._handles:
        if handle.executor is not None and handle.record.name in own:
            handle.executor.rng_state = own.pop(handle.record.name)


def _words_of_this_instance(words: List[int], saved_by: int) -> List[int]:
    """Give another instance than the one that saved a stream of its own: all would drop the same units."""
    distance = this_instance().index - saved_by
    return [(sum(words) + distance * _INSTANCE_DISTANCE) % 2**32] if distance else words
