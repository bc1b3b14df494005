"""Define `Options`: every setting of the device API with its defaults, checks and messages; none acts here."""

# long because the vendor's class has a method for each of its settings, and users read them in one place

from __future__ import annotations

import copy
import json
import os
from typing import Any, Dict, List, Optional

import torch

from porting.simulator import _options_config
from porting.simulator._logging import logger
from porting.simulator._options.groups import (
    TensorLocationSettings,
    _DistributedOptions,
    _GraphProcessingOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from porting.simulator._options.simulator_options import SimulatorOptions, read_extras
from porting.simulator._options_config import ConfigFileError
from porting.simulator._options_impl import require, require_type
from porting.simulator._scopes.execution_strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _IExecutionStrategy,
)
from porting.simulator._scopes.graph_scopes import Attribute
from porting.simulator.enums import CommGroupType, ConnectionType, OutputMode, SyncPattern

__all__ = [
    "Attribute",
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
]

# the largest number that the compiled part can be given
_UNLIMITED_REPEATS = 2**64 - 1
_SOURCE_LOCATION_EXCLUDES = ("install/poptorch", "site-packages/torch", "site-packages/poptorch")
# PopART's numbers of them; 1 is for zeros, which PopTorch offers nowhere
_SYNTHETIC_DATA_OFF, _SYNTHETIC_DATA_RANDOM_NORMAL = 0, 2


class Options(SimulatorOptions):
    """Settings of a wrapped model or a DataLoader; both freeze the object they are given.

    Setters return the object. `clone` gives a copy that can be changed again.

    >>> Options().deviceIterations(4).outputMode(OutputMode.All).device_iterations
    4
    """

    def __init__(self) -> None:
        self._jit = _JitOptions()
        self._popart = _PopartOptions()
        self._graphProcessing = _GraphProcessingOptions()
        self._precision = _PrecisionOptions(self._popart)
        self._training = _TrainingOptions(self._popart)
        self._distributed = _DistributedOptions()
        self._tensor_locations = _TensorLocationOptions()
        # These have PopTorch's names, by which libraries read and set them.
        self._execution_strategy: _IExecutionStrategy = PipelinedExecution()
        self._source_location_excludes: List[str] = list(_SOURCE_LOCATION_EXCLUDES)
        self._relax_optimizer_checks = False
        self._show_compilation_progress_bar = True
        self._module_namescope_enabled = True
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_cgt=CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            max_repeat_logs=4,
            auto_round_num_ipus=False,
            anchored_tensors={},
            # Numbers from here on: an option keeps the type of its first value, and the compiler knows no members.
            output_mode=OutputMode.Default.value,
            output_return_period=1,
            connection_type=ConnectionType.Always.value,
            sync_pattern=SyncPattern.Full.value,
            available_memory_proportion={},
        )
        cache_dir = os.environ.get("POPTORCH_CACHE_DIR")
        if cache_dir:
            logger.info("POPTORCH_CACHE_DIR is set: setting cache path to %s", cache_dir)
            self.enableExecutableCaching(cache_dir)
        # after the variable for the cache alone, which it may replace; a program's own setters come later still
        self.from_json(os.environ.get("POPTORCH_DEFAULT_OPTIONS") or "{}")

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """The locations of tensors."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """The options for several processes that run the program."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """The remaining options of PopTorch 2's tracing front end."""
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        """The options for storing, rounding and checking numbers."""
        return self._precision

    @property
    def Training(self) -> _TrainingOptions:
        """The options for joining gradients to one update."""
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        """Options of the graph compiler, by name and unchecked."""
        return self._popart

    def from_json(self, string: str) -> Options:
        """Call setters as a JSON object says.

        >>> Options().from_json('{"Training.gradientAccumulation": 8}').Training.gradient_accumulation
        8
        """
        _options_config.apply_json(self, string)
        return self

    def loadFromFile(self, filepath: str) -> Options:
        """Call the setters in a file, one on each line; `ConfigFileError` for text that is not Python."""
        _options_config.apply_config_file(self, filepath)
        return self

    def deviceIterations(self, device_iterations: int) -> Options:
        """Set how many times the device repeats a step before a call returns."""
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> Options:
        """Set how many copies of the model work on different samples."""
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType) -> Options:
        """Give replicas of one group the same input; set ``replicationFactor`` first.

        Raises `ValueError` for the type ``All`` and for a size that does not divide the replication factor.
        """
        if input_group_type == CommGroupType.All:
            raise ValueError("input_group_type cannot be All")
        # Groups of one say the same, and then a plan has two kinds of groups to know and not three.
        if input_group_type == CommGroupType.NoGrouping:
            input_group_size, input_group_type = 1, CommGroupType.Consecutive
        if input_group_size > self.replication_factor:
            raise ValueError("input_group_size cannot be larger than replication_factor")
        if self.replication_factor % input_group_size:
            raise ValueError("input_group_size must be a factor of replication_factor")
        return self.set(input_group_size=input_group_size, input_cgt=input_group_type)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Choose whether all replicas start from the same buffers."""
        return self.set(broadcast_buffers=broadcast_buffers)

    def outputMode(self, output_mode: OutputMode, output_return_period: Optional[int] = None) -> Options:
        """Choose which micro-batches' outputs a call returns; ``EveryN`` needs a period."""
        _check_output_mode(output_mode, output_return_period)
        # not an error: PopTorch warns and continues
        if output_mode != OutputMode.EveryN and output_return_period:
            logger.info("Anchor return period argument ignored with output_mode set to %s", str(output_mode))
        return self.set(output_mode=output_mode.value, output_return_period=output_return_period or 1)

    def defaultOutputMode(self) -> bool:
        """Tell whether no output mode was chosen."""
        return self.output_mode == OutputMode.Default

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: Optional[OutputMode] = None,
        output_return_period: Optional[int] = 1,
    ) -> None:
        """Anchor a tensor of the graph by name; without a mode, it is returned as the outputs are."""
        if output_mode is not None:
            _check_output_mode(output_mode, output_return_period)
        # a period without meaning would be a value out of range for the compiler
        if output_mode != OutputMode.EveryN:
            output_return_period = 1
        # A list, as in PopTorch: what it inherits from the model is filled in when an executor gets its options.
        self.anchored_tensors[short_name] = [long_name, output_mode is None, output_mode, output_return_period]

    def randomSeed(self, random_seed: int) -> Options:
        """Set the device's seed, and PyTorch's with `torch.manual_seed`, which happens at once."""
        require_type(random_seed, int, "an int for randomSeed")
        # PopTorch does so too: weights that are made after this line depend on it
        torch.manual_seed(random_seed)
        return self.createOrSet(random_seed=random_seed)

    def setExecutionStrategy(self, strategy: _IExecutionStrategy) -> Options:
        """Choose how stages run: pipelined, sharded or in phases."""
        require_type(strategy, _IExecutionStrategy, "an execution strategy")
        self._execution_strategy = strategy
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion: Dict[str, float]) -> Options:
        """Set the share of memory for temporary data of matrix products and convolutions, as ``{"IPU0": 0.5}``."""
        proportions: Dict[int, float] = {}
        for key, proportion in available_memory_proportion.items():
            require(
                isinstance(key, str) and key.startswith("IPU"),
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5} where the 0 in IPU0 '
                f"is the index of the IPU. Invalid key: {key}",
            )
            proportions[int(key[3:])] = proportion
        return self.set(available_memory_proportion=proportions)

    def connectionType(self, connection_type: ConnectionType) -> Options:
        """Choose when to attach to a device."""
        require_type(connection_type, ConnectionType, "poptorch.ConnectionType")
        return self.set(connection_type=connection_type.value)

    def syncPattern(self, sync_pattern: SyncPattern) -> Options:
        """Choose which IPUs wait for which."""
        require_type(sync_pattern, SyncPattern, "poptorch.SyncPattern")
        return self.set(sync_pattern=sync_pattern.value)

    def useIpuModel(self, use_model: bool) -> Options:
        """Choose the vendor's IPU model instead of hardware, regardless of the environment."""
        return self.createOrSet(use_model=use_model)

    def useIpuId(self, ipu_id: int) -> Options:
        """Choose one device by its number."""
        require_type(ipu_id, int, "an int for useIpuId")
        return self.createOrSet(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        """Compile for a device that is not there; running is then an error."""
        # no attribute of its own: a device that is never attached is an offline one
        return self.connectionType(ConnectionType.Never).createOrSet(ipu_version=ipu_version)

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Reserve the next power of two of IPUs."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def enableExecutableCaching(self, path: Optional[str]) -> Options:
        """Keep executables in this directory; None switches caching off."""
        if path is not None:
            self._popart.set("cachePath", path)
        self._popart.set("enableEngineCaching", path is not None)
        return self

    def enableStableNorm(self, enabled: bool) -> Options:
        """Use a slower, more stable formula in normalisations."""
        self._popart.set("enableStableNorm", enabled)
        return self

    def enableSyntheticData(self, enabled: bool) -> Options:
        """Let the device generate random inputs instead of reading the host's."""
        self._popart.set("syntheticDataMode", _SYNTHETIC_DATA_RANDOM_NORMAL if enabled else _SYNTHETIC_DATA_OFF)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        """Count the device's cycles, for ``cycleCount()``."""
        self._popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def updatableNamedBuffers(self, buffers: List[str]) -> Options:
        """List the buffers that ``copyNamedBuffersToDevice()`` updates."""
        self._popart.set("updatableNamedBuffers", buffers)
        return self

    def enableProfiling(self, profile_dir: Optional[str] = None) -> Options:
        """Write a profile of the compiled program to a directory, the working directory by default.

        Warns of settings that the environment overrides.
        """
        folder = profile_dir or "."
        settings = {"debug.allowOutOfMemory": "true", "autoReport.directory": folder, "autoReport.all": "true"}
        overriding = json.loads(os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}")
        for key in settings:
            if key in overriding:
                text = f"POPLAR_ENGINE_OPTIONS: {key}={overriding[key]}"
                logger.warning("Profiling setting overridden by environment variable %s", text)
        self._popart.set("engineOptions", {**self._popart.options.get("engineOptions", {}), **settings})
        return self

    def logDir(self, log_dir: str) -> Options:
        """Set where log files go."""
        return self.set(log_dir=log_dir)

    def maxRepeatLogs(self, max_lines: Optional[int]) -> Options:
        """Set how often an equal line is logged in a row; None for no limit."""
        return self.set(max_repeat_logs=_UNLIMITED_REPEATS if max_lines is None else max_lines)

    def modelName(self, name: str) -> Options:
        """Name the model, for profiles."""
        return self.createOrSet(model_name=name)

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        """Show a progress bar while compiling; ``compilationTime()`` needs it."""
        self._show_compilation_progress_bar = show
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Log unexpected optimizer attributes at debug level instead of warning."""
        self._relax_optimizer_checks = relax
        return self

    def disableModuleNamescope(self) -> Options:
        """Leave module paths out of operator names."""
        self._module_namescope_enabled = False
        return self

    def sourceLocationExcludes(self, excludes: List[str]) -> Options:
        """Replace the path fragments whose stack frames are not the user's source."""
        self._source_location_excludes = list(excludes)
        return self

    def appendToLocationExcludes(self, *excludes: str) -> Options:
        """Add path fragments whose stack frames are not the user's source."""
        self._source_location_excludes = [*self._source_location_excludes, *excludes]
        return self

    def toDict(self) -> Dict[str, Any]:
        """Return all settings as the compiler gets them; `AssertionError` before an output mode was chosen."""
        require(not self.defaultOutputMode(), "An output mode must be picked before serialisation")
        # The groups refuse to replace what is there already: two settings of one name would be a mistake here.
        settings = {**self._execution_strategy.backendOptions(), **self._popart.options}
        for group in (self, self._training, self._distributed, self._tensor_locations):
            settings = group.update(settings)
        # a function, and no setting: the compiler calls it with its progress
        progress = (
            {"compilation_progress_bar_fn": read_extras(self).progress_bar}
            if self._show_compilation_progress_bar
            else {}
        )
        return {**settings, **progress}

    def clone(self) -> Options:
        """Return a copy that can be changed."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value in self._values.items()]
        properties = [
            f"{name}={getattr(self, name)!r}"
            for name in dir(type(self))
            if isinstance(getattr(type(self), name), property)
        ]
        return f"{type(self).__name__}({', '.join(values + properties)})"


def _check_output_mode(output_mode: OutputMode, output_return_period: Optional[int]) -> None:
    require_type(output_mode, OutputMode, "poptorch.OutputMode")
    if output_mode == OutputMode.EveryN:
        require(
            output_return_period is not None and output_return_period > 0,
            "EveryN anchor must have output_return_period set to valid positive integer",
        )
