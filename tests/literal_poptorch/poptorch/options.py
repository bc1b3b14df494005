"""`Options`: what they hold is written down; names that PopTorch does not have are errors."""

from __future__ import annotations

import copy
import enum
from typing import Any, Dict


class OutputMode(enum.Enum):
    """Which micro-batches a call returns."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ReductionType(enum.IntEnum):
    """How gradients are joined."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class Stage:
    """A stage of a pipeline."""

    def __init__(self, *block_ids: Any) -> None:
        self.block_ids = block_ids

    def ipu(self, ipu: int) -> Stage:
        self.ipu_id = ipu
        return self


class PipelinedExecution:
    """The stages of a pipeline, in order."""

    def __init__(self, *stages: Any) -> None:
        self.stages = stages


class ShardedExecution(PipelinedExecution):
    """The same, one micro-batch after the other."""


class _Noted:
    """Methods that write down what they are given."""

    _names = ()

    def __init__(self) -> None:
        self.__dict__["noted"] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"`{type(self).__name__}` has no `{name}`")

        def note(*args: Any, **kwargs: Any) -> Any:
            self.noted[name] = (args, kwargs)
            return self

        return note

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        other = type(self)()
        other.__dict__.update({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return other

    def _first(self, name: str, default: Any) -> Any:
        return self.noted[name][0][0] if name in self.noted else default


class _Training(_Noted):
    _names = ("accumulationAndReplicationReductionType", "gradientAccumulation", "setAutomaticLossScaling")

    @property
    def gradient_accumulation(self) -> int:
        return self._first("gradientAccumulation", 1)

    @property
    def averages(self) -> bool:
        return self._first("accumulationAndReplicationReductionType", ReductionType.Mean) == ReductionType.Mean


class _Distributed(_Noted):
    _names = ("configureProcessId", "disable", "setEnvVarNames")
    numProcesses, processId = 1, 0


class _Precision(_Noted):
    _names = ("enableFloatingPointExceptions", "enableStochasticRounding", "halfFloatCasting", "setPartialsType")


class TensorLocationSettings(_Noted):
    """Where tensors of a kind lie."""

    _names = ("useIOTilesToLoad", "useIOTilesToStore", "useOnChipStorage", "useReplicatedTensorSharding")


class _Locations(_Noted):
    _names = (
        "setAccumulatorLocation",
        "setActivationLocation",
        "setOptimizerLocation",
        "setWeightLocation",
        "numIOTiles",
    )


class Options(_Noted):
    """How a model is compiled and run."""

    _names = (
        "anchorTensor",
        "autoRoundNumIPUs",
        "broadcastBuffers",
        "connectionType",
        "deviceIterations",
        "disableModuleNamescope",
        "enableExecutableCaching",
        "enableProfiling",
        "enableStableNorm",
        "logDir",
        "modelName",
        "outputMode",
        "randomSeed",
        "relaxOptimizerAttributesChecks",
        "replicationFactor",
        "setAvailableMemoryProportion",
        "setExecutionStrategy",
        "showCompilationProgressBar",
        "syncPattern",
        "updatableNamedBuffers",
        "useIpuId",
    )

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(
            Distributed=_Distributed(), Precision=_Precision(), TensorLocations=_Locations(), Training=_Training()
        )

    @property
    def device_iterations(self) -> int:
        return self._first("deviceIterations", 1)

    @property
    def replication_factor(self) -> int:
        return self._first("replicationFactor", 1)

    @property
    def output_mode(self) -> OutputMode:
        return self._first("outputMode", OutputMode.Default)

    @property
    def output_return_period(self) -> int:
        args, kwargs = self.noted["outputMode"]
        return kwargs.get("output_return_period", args[1] if len(args) > 1 else 1)

    def clone(self) -> Options:
        return copy.deepcopy(self)
