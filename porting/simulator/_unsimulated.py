"""The settings that change results on a device and that the simulator does not act on: each is refused by name."""

from __future__ import annotations

from typing import Callable, NamedTuple, Tuple

from porting.simulator._logging import logger
from porting.simulator.enums import ConnectionType
from porting.simulator.errors import not_simulated
from porting.simulator.options import Options

__all__ = ["refuse_unsimulated"]


class _Refusal(NamedTuple):
    """A setting: its spelling, when it is in use, and what going on without it would do."""

    name: str
    is_used: Callable[[Options], bool]
    why: str
    in_training_only: bool = False


def refuse_unsimulated(options: Options, *, training: bool) -> None:
    """Raise `NotSimulatedError` for the first setting in use that has an effect on results and is not simulated.

    Settings that only concern memory, speed, logs and profiles are accepted. ``logCycleCount`` is accepted here: a
    call without hardware refuses it with an error of its own.
    """
    for refusal in _REFUSALS:
        if refusal.is_used(options) and (training or not refusal.in_training_only):
            not_simulated(f"poptorch.Options.{refusal.name}", refusal.why)
    if options._Popart.options.get("enableStochasticRounding"):
        logger.info("Precision.enableStochasticRounding has no effect in the simulator: it rounds to nearest")


def _popart_option(key: str) -> Callable[[Options], bool]:
    return lambda options: bool(options._Popart.options.get(key))


def _has_several_stages(options: Options) -> bool:
    return len({id(stage) for stage in options._execution_strategy._block_map.values()}) > 1


def _is_offline(options: Options) -> bool:
    return options.connection_type == ConnectionType.Never


_REFUSALS: Tuple[_Refusal, ...] = (
    _Refusal(
        "useOfflineIpuTarget",
        lambda options: _is_offline(options) and options.exists("ipu_version"),
        "an executable for an absent device is of no use here: the simulator's executables run on this machine",
    ),
    _Refusal("connectionType(ConnectionType.Never)", _is_offline, "the simulator always has its device"),
    _Refusal("anchorTensor", lambda options: bool(options.anchored_tensors), "the tensors would never be returned"),
    _Refusal(
        "inputReplicaGrouping",
        lambda options: options.input_group_size > 1,
        "every replica would get inputs of its own, and a call would take more samples",
    ),
    _Refusal(
        "Distributed",
        lambda options: options.Distributed.numProcesses > 1,
        "every process would train alone, without exchanging gradients",
    ),
    _Refusal("enableSyntheticData", _popart_option("syntheticDataMode"), "the host's data would be used all the same"),
    _Refusal(
        "Precision.enableFloatingPointExceptions",
        _popart_option("enableFloatingPointChecks"),
        "NaN and infinity would go unnoticed",
    ),
    _Refusal(
        "Training.setAutomaticLossScaling",
        _popart_option("automaticLossScalingSettings.enabled"),
        "the loss scaling would stay as it is",
        in_training_only=True,
    ),
    _Refusal(
        "setExecutionStrategy",
        _has_several_stages,
        "a strategy with several stages asks for blocks, which the simulator does not assign to stages",
    ),
)
