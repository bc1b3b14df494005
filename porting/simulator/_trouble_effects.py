"""The kinds of trouble in the failure lab: when each one strikes, and what it does to a device and its results."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import torch

from ..targets import DEFAULT, TARGETS
from ._device.device_pool import refusal, waits_for_ipus
from ._logging import cpp_log
from .errors import native_error

__all__ = ["KINDS", "Kind", "Moment"]

_TARGET = TARGETS[DEFAULT]
_WAIT_SECONDS = 0.05


class Moment(enum.Enum):
    """When trouble can strike."""

    COMPILE = "compilation"
    ATTACH = "attaching"
    CALL = "call"
    RESULT = "finished call"
    BATCH = "batch"


# With the settings, the device session and its call's results; True asks for the same moment to be tried once more.
_Effect = Callable[[Mapping[str, Any], Any, Sequence[torch.Tensor]], Optional[bool]]


@dataclass(frozen=True)
class Kind:
    """A kind of trouble: its moment, its own settings with their defaults, and what happens."""

    moment: Moment
    summary: str
    effect: _Effect
    settings: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)


def _run_out_of_memory(settings: Mapping[str, Any], _subject: Any, _results: Any) -> None:
    tile_bytes = settings["tile_bytes"]
    used = tile_bytes * (100 + settings["percent_over"]) // 100
    num_tiles = _TARGET.num_tiles
    total_mib = used * num_tiles / 2**20
    raise native_error(
        "Out of memory: Cannot fit all variable data onto one or more tiles. "
        f"Out of memory on tile 0: {used} bytes used but tiles only have {tile_bytes} bytes of memory\n"
        f"  Memory needed on IPU 0 (with gaps): {total_mib:.0f} MiB of {tile_bytes * num_tiles / 2**20:.0f} MiB over "
        f"{num_tiles} tiles\n"
        "  For a memory profile of the program, set POPLAR_ENGINE_OPTIONS="
        '\'{"autoReport.all":"true", "autoReport.directory":"./report", "debug.allowOutOfMemory":"true"}\' or use '
        'poptorch.Options().enableProfiling("./report"), and open the report in the PopVision Graph Analyser.',
        kind="popart_exception",
        context=["popart::Session::prepareDevice: Poplar compilation", "LowerToPopart::compile", "compileAndLoad"],
    )


def _lose_device(settings: Mapping[str, Any], session: Any, _results: Any) -> None:
    action = settings["recovery"]
    session.lose_device()
    is_lost_for_ever = action == "none"
    raise native_error(
        _LOSSES[action],
        kind=f"poplar_{'un' if is_lost_for_ever else ''}recoverable_runtime_error",
        context=["popart::Session::run", "PoplarExecutable::run"],
        recovery_action="" if is_lost_for_ever else action,
    )


# What is lost, by the action that PopTorch asks for to get it back.
_LOSSES = {
    "IPU_RESET": "IPU 0 stopped: a tile raised an exception (TEXCPT) and did not reach the next sync",
    "LINK_RESET": "Timed out waiting for a sync over the IPU-Links: link 3 of IPU 0 is down",
    "PARTITION_RESET": "The partition of the device lost its connection to the IPU-Machine",
    "FULL_RESET": "The device stopped responding: host exchange failed on all IPUs",
    "none": "The device stopped responding and cannot be reset: IPU 0 reported an uncorrectable memory error",
}


def _break_host_stream(settings: Mapping[str, Any], session: Any, _results: Any) -> None:
    num_streams = len(session.signature.arguments.tensors())
    if settings["stream"] >= num_streams:
        raise ValueError(
            f"failure lab: there is no stream {settings['stream']}: the model has {num_streams} inputs, counted from 0"
        )
    raise native_error(
        f"Host stream copy failed: stream 'h2d_{settings['stream']}' got no data within the time limit",
        kind="poplar_unknown_runtime_error",
        context=["poplar::Engine::run", "PoplarExecutable::run"],
    )


def _overflow_float16(settings: Mapping[str, Any], session: Any, results: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        if settings["where"] == "activations":
            for tensor in results:
                _fill_floats(tensor, float("inf"))
        # an update with infinite gradients has made the weights, and all that the optimizer remembers, NaN
        state = session.compiled.state
        for name, parameter in state.parameters.items():
            if session.is_training and parameter.requires_grad:
                _fill_floats(parameter, float("nan"))
                for slot, tensor in state.slots.get(name, {}).items():
                    if slot != "Step":  # which only counts
                        _fill_floats(tensor, float("nan"))


def _fill_floats(tensor: torch.Tensor, value: float) -> None:
    if tensor.is_floating_point():
        tensor.fill_(value)


def _refuse_device(_settings: Mapping[str, Any], _session: Any, _results: Any) -> bool:
    if waits_for_ipus():
        cpp_log("info", "No IPU available, sleeping...")
        time.sleep(_WAIT_SECONDS)
        return True
    raise native_error(
        refusal("1 IPU(s)", "all devices are in use. Set POPTORCH_WAIT_FOR_IPU=1 to wait for one"),
        context=["PoplarExecutable::attachToDevice"],
    )


def _fail_to_read_data(_settings: Mapping[str, Any], _subject: Any, _results: Any) -> None:
    raise OSError(5, "Input/output error while reading the dataset (failure lab)")


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "out-of-memory": Kind(
            Moment.COMPILE,
            "the program needs more memory than a tile has",
            _run_out_of_memory,
            {"percent_over": 6, "tile_bytes": _TARGET.tile_bytes},
        ),
        "busy-device": Kind(Moment.ATTACH, "all IPUs are in use, or one is free later", _refuse_device),
        "lost-device": Kind(
            Moment.CALL,
            "the device is lost with all that was not copied to the host; recovery=none for ever",
            _lose_device,
            {"recovery": "IPU_RESET"},
            {"recovery": tuple(_LOSSES)},
        ),
        "host-stream": Kind(Moment.CALL, "an input does not reach the device", _break_host_stream, {"stream": 0}),
        "float16-overflow": Kind(
            Moment.RESULT,
            "outputs become infinite, and in training the weights NaN; where=gradients spares the outputs",
            _overflow_float16,
            {"where": "activations"},
            {"where": ("activations", "gradients")},
        ),
        "slow-data": Kind(
            Moment.BATCH,
            "a batch of a DataLoader comes late",
            lambda settings, _session, _results: time.sleep(settings["seconds"]),
            {"seconds": 1.0},
        ),
        "failing-data": Kind(Moment.BATCH, "a batch of a DataLoader cannot be read", _fail_to_read_data),
    }
)
"""Every kind of trouble, by the name that `porting.simulator.trouble.inject` and the command line take."""
