"""Define the groups of `Options`: Precision, Training, Distributed, TensorLocations, Jit and _Popart."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

import torch

from porting.simulator._logging import logger
from porting.simulator._options_impl import Freezable, OptionsDict, require, require_type
from porting.simulator.enums import HalfFloatCastingBehavior, MeanReductionStrategy, ReductionType

_PARTIALS_TYPES = {torch.float32: "float", torch.float16: "half"}


class _PopartOptions(Freezable):
    """Options of the graph compiler, by name; `_validateOptions` and compiling check them.

    >>> _PopartOptions().set("autoRecomputation", 3).options["autoRecomputation"]
    3
    """

    def __init__(self) -> None:
        self.options: Dict[str, Any] = {"instrumentWithHardwareCycleCounter": False, "rearrangeAnchorsOnHost": False}

    def set(self, key: str, value: object) -> _PopartOptions:
        """Set any option to any value."""
        self.checkIsFrozen(key)
        self.options[key] = value
        return self

    def setEngineOptions(self, engine_options: Dict[str, str]) -> _PopartOptions:
        """Set Poplar's engine options."""
        return self.set("engineOptions", engine_options)

    def setPatterns(self, patterns: Dict[str, bool], level: int = 2) -> _PopartOptions:
        """Switch the graph compiler's patterns on or off, starting from those of ``level``."""
        require_type(level, int, "an int for the patterns level")
        require_type(patterns, dict, "a dict of patterns")
        return self.set("patterns_level", level).set("patterns", patterns)

    def __repr__(self) -> str:
        return f"_PopartOptions({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"


# empty, and still an attribute of PopTorch's options
class _GraphProcessingOptions(OptionsDict):
    """Options of the graph before it is compiled; PopTorch 3.4 has none left."""


class _JitOptions(OptionsDict):
    """The remaining options of PopTorch 2's tracing front end."""

    def traceModel(self, trace_model: bool) -> _JitOptions:
        """Only warn; raises `ValueError` for True, which is no longer possible."""
        logger.warning(
            "[Deprecated] Do not call options.Jit.traceModel(): the option has no effect and will be removed"
        )
        if trace_model:
            raise ValueError("options.Jit.traceModel(True) is no longer supported")
        return self


class _PrecisionOptions(OptionsDict):
    """Options for storing, rounding and checking numbers."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart_options = popart_options
        super().__init__()

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> _PrecisionOptions:
        """Only warn that the option is deprecated."""
        logger.warning(
            "[Deprecated] Do not call options.Precision.halfFloatCasting(%s): the option is ignored, mixed operands "
            "are promoted as PyTorch does",
            half_float_casting,
        )
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> _PrecisionOptions:
        """Only warn that the option is deprecated; raises `ValueError` unless a bool is passed."""
        # checked although it is ignored, as in PopTorch
        if not isinstance(value, bool):
            raise ValueError("runningStatisticsAlwaysFloat needs to be set to a bool")
        logger.warning(
            "[Deprecated] Do not call options.Precision.runningStatisticsAlwaysFloat(): the option is ignored"
        )
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> _PrecisionOptions:
        """Make the device raise on division by zero, invalid operations and overflow."""
        require(isinstance(enabled, bool), "enableFloatingPointExceptions needs to be set to a bool")
        self._popart_options.set("enableFloatingPointChecks", enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> _PrecisionOptions:
        """Round half-precision results up or down at random, in proportion to the distance."""
        self._popart_options.set("enableStochasticRounding", enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> _PrecisionOptions:
        """Choose the type in which matrix products and convolutions are summed; `ValueError` unless float or half."""
        if dtype not in _PARTIALS_TYPES:
            # The missing space is PopTorch's.
            raise ValueError("parameter to setPartialsType should be eithertorch.float or torch.half")
        # one option for products and another for convolutions, which replaces their earlier settings
        name = _PARTIALS_TYPES[dtype]
        self._popart_options.set("partialsTypeMatMuls", name).set("convolutionOptions", {"partialsType": name})
        return self


class _TrainingOptions(OptionsDict):
    """Options for joining gradients to one update."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart_options = popart_options
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> _TrainingOptions:
        """Set how many micro-batches per replica contribute to one update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> _TrainingOptions:
        """Choose whether gradients are averaged or summed; `ValueError` for anything but Mean and Sum."""
        if not isinstance(reduction_type, ReductionType) or reduction_type == ReductionType.NoReduction:
            raise ValueError(
                "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean or "
                "poptorch.ReductionType.Sum"
            )
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> _TrainingOptions:
        """Choose when a mean is divided, which matters for the range of half precision only."""
        return self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> _TrainingOptions:
        """Let the device adapt the loss scaling to the range of the gradients."""
        self._popart_options.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> _TrainingOptions:
        """Spread convolutions over other tiles; this replaces other convolution options."""
        self._popart_options.set("convolutionOptions", {"enableConvDithering": enabled})
        return self


class _DistributedOptions(OptionsDict):
    """Options for several processes that run the program."""

    def __init__(self) -> None:
        self._gcd_mappings: Dict[int, Any] = {}
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        # Not the public method: a derived class may override it to raise.
        self._read_environment("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> _DistributedOptions:
        """Run as a single process, regardless of the environment."""
        return self.set(distributed_process_id=0, num_distributed_processes=1)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> _DistributedOptions:
        """Read the number of processes and this one's number from environment variables, 1 and 0 if absent."""
        self._read_environment(var_num_processes, var_process_id)
        return self

    def configureProcessId(self, process_id: int, num_processes: int) -> _DistributedOptions:
        """Set this process's number, counted from 0, and how many there are."""
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self) -> int:
        """This process's number."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """The number of processes that run the program."""
        return self.num_distributed_processes

    def _read_environment(self, var_num_processes: str, var_process_id: str) -> None:
        self.set(
            num_distributed_processes=int(os.environ.get(var_num_processes, "1")),
            distributed_process_id=int(os.environ.get(var_process_id, "0")),
        )


class TensorLocationSettings(OptionsDict):
    """The location of one kind of tensor, for `Options.TensorLocations`.

    >>> TensorLocationSettings().useOnChipStorage(False).toDict()
    {'onChip': 0}
    >>> TensorLocationSettings(onChip=1).toDict()
    {'onChip': 1}
    """

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """Keep tensors with fewer elements on the chip in any case."""
        return self._set_int("minElementsForOffChip", min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """Shard only tensors with at least so many elements over the replicas."""
        return self._set_int("minElementsForReplicatedTensorSharding", min_elements)

    def useOnChipStorage(self, use: Optional[bool] = True) -> TensorLocationSettings:
        """Keep tensors on the chip or off it; None leaves it to the compiler."""
        # absent, and not None: the compiler gets only what was chosen
        if use is None:
            self.deleteIfExists("onChip")
            return self
        return self._set_flag("onChip", use)

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        """Shard tensors over the replicas instead of copying them."""
        return self._set_flag("useReplicatedTensorSharding", use)

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        """Load through the IO tiles."""
        return self._set_flag("useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        """Store through the IO tiles."""
        return self._set_flag("useIOTilesToStore", use)

    def _set_int(self, name: str, value: int) -> TensorLocationSettings:
        require_type(value, int, f"an int for {name}")
        return self.createOrSet(**{name: value})

    def _set_flag(self, name: str, value: bool) -> TensorLocationSettings:
        require_type(value, bool, f"a bool for {name}")
        # the compiler knows these as numbers
        return self.createOrSet(**{name: int(value)})


class _TensorLocationOptions(OptionsDict):
    """Options for the location of each kind of tensor; they affect memory and speed, not results."""

    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        """Reserve tiles for input and output."""
        require_type(num_tiles, int, "an int for numIOTiles")
        # of the 1472 of a Mk2 IPU; the others compute
        require(32 <= num_tiles <= 192 and num_tiles % 2 == 0, "numIOTiles must be an even number between 32 and 192.")
        return self.createOrSet(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Set where activations are kept."""
        return self._set_location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Set where weights are kept."""
        return self._set_location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Set where the optimizer's state is kept."""
        return self._set_location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Set where accumulated gradients are kept."""
        return self._set_location("location_accumulator", location)

    def _set_location(self, name: str, location: TensorLocationSettings) -> _TensorLocationOptions:
        require_type(location, TensorLocationSettings, "poptorch.TensorLocationSettings")
        return self.createOrSet(**{name: location.toDict()})
