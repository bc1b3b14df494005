"""Check `Options.toDict()` as the vendor's compiler does: every key must be known for the type of its value.

Compilations run it.
"""

from __future__ import annotations

from collections import abc
from enum import Enum
from typing import Any, Dict, FrozenSet

from porting.simulator._logging import cpp_log, logger
from porting.simulator.errors import native_error

__all__ = ["validate_options"]


def validate_options(options: Dict[str, Any]) -> None:
    """Raise `Error` for an unknown key, or a wrong type or value; log each setting at debug level."""
    if "patterns" in options and "patterns_level" not in options:
        raise native_error("Patterns were given without a level: set patterns_level too")
    for key, value in options.items():
        # the enumerations of numbers are integers already
        if isinstance(value, Enum) and not isinstance(value, int):
            value = value.value
        kind = next((name for name, types in _TYPES.items() if isinstance(value, types)), None)
        # where tensors are kept has a key for each kind of tensor
        own_kind = "map" if key.startswith("location_") else _KIND_OF_KEY.get(key)
        if kind is None or not (kind == own_kind if own_kind else kind in _KNOWN_KEYS):
            raise native_error(f"Unknown value type {type(value)} for option {key}")
        if own_kind is None and key not in _KNOWN_KEYS[kind]:
            raise native_error(f"Unknown {kind} option {key} for option of the compiler")
        if kind == "uint64" and not 0 <= value <= _HIGHEST_VALUES.get(key, 2**64 - 1):
            raise native_error(f"Value for {key} out of range: {value}")
        if value == 0 and key in _COUNTS:
            raise native_error(f"Value for {key} out of range: 0. A call runs at least one: set it to 1 or more")
        _log_setting(key, kind, value)


def _log_setting(key: str, kind: str, value: Any) -> None:
    if key == "logDir":
        logger.warning("Ignoring the option logDir: use poptorch.Options().logDir()")
    elif kind == "set / vector":
        for element in value:
            cpp_log("debug", f"poptorch.Options added {element} to {key}")
    elif kind == "map":
        for name, entry in value.items():
            cpp_log("debug", f"poptorch.Options set {key}[{name}] to {_write_value(entry)}")
    elif kind != "function":
        cpp_log("debug", f"poptorch.Options set {key} to value {_write_value(value)}")


def _write_value(value: object) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return value.value if isinstance(value, Enum) else value


# The names of the types of values in PopTorch's messages. The order decides: a bool is an int, too.
_TYPES: Dict[str, Any] = {
    "bool": bool,
    "uint64": int,
    "string": str,
    "floating point": float,
    "set / vector": (list, tuple, set, frozenset),
    "map": dict,
    "function": abc.Callable,
}
# Keys that the compiler reads by themselves: a value of another type is a wrong type there, and not an unknown key.
_KIND_OF_KEY = {
    "anchored_tensors": "map",
    "available_memory_proportion": "map",
    "compilation_progress_bar_fn": "function",
    "numIOTiles": "uint64",
    "patterns": "map",
    "patterns_level": "uint64",
}
_KNOWN_KEYS: Dict[str, FrozenSet[str]] = {
    "bool": frozenset(
        """
        auto_round_num_ipus use_model serial_phases_execution separate_backward_phase broadcast_buffers
        enableExplicitIR enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState
        batchSerializationSettings.concatOnVirtualGraphChange
        batchSerializationSettings.concatOnExecutionPhaseChange
        batchSerializationSettings.concatOnPipelineStageChange strictOpVersions opxAliasChecking opxModifyChecking
        dotOpNames exportPoplarComputationGraph exportPoplarVertexGraph separateCallOpPdfs enableOutlining
        enableOutliningCopyCostPruning rearrangeAnchorsOnHost rearrangeStreamsOnHost enablePrefetchDatastreams
        enableNonStableSoftmax enableReplicatedGraphs enableGradientAccumulation instrumentWithHardwareCycleCounter
        enablePipelining disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams compileEngine
        constantWeights enableEngineCaching enableMergeExchange enableFloatingPointChecks enableStochasticRounding
        ensureFp32LossScaleTensor explicitRecomputation enableExplicitMainLoops useHostCopyOps aliasZeroCopy
        delayVarUpdates enableFullyConnectedPass enableSerializedMatmuls enableStableNorm decomposeGradSum
        enableDistributedReplicatedGraphs groupHostSync automaticLossScalingSettings.enabled
        enableSupportedDataTypeCasting groupNormStridedChannelGrouping scheduleNonWeightUpdateGradientConsumersEarly
        replicatedCollectivesSettings.prepareScheduleForMergingCollectives
        replicatedCollectivesSettings.mergeAllReduceCollectives
        """.split()
    ),
    "uint64": frozenset(
        """
        device_iterations num_distributed_processes distributed_process_id ipu_version ipu_id gradient_accumulation
        output_return_period replication_factor input_group_size input_cgt execution_mode tensors_liveness
        output_mode connection_type sync_pattern random_seed max_repeat_logs
        accumulation_and_replication_reduction_type accumulateOuterFragmentSettings.schedule
        autodiffSettings.stitchStrategy batchSerializationSettings.transformContext
        batchSerializationSettings.method batchSerializationSettings.batchSchedule batchSerializationSettings.factor
        autoRecomputation mergeVarUpdate virtualGraphMode syntheticDataMode subgraphCopyingStrategy
        accumulationAndReplicationReductionType meanAccumulationAndReplicationReductionStrategy
        automaticLossScalingSettings.gradientTensorTrackingMethod executionPhaseSettings.phases
        executionPhaseSettings.stages firstDotOp finalDotOp mergeVarUpdateMemThreshold looseThresholdAtPeak
        accumulationFactor swapLimitScheduler globalReplicationFactor globalReplicaOffset defaultBufferingDepth
        defaultPrefetchBufferingDepth compilationProgressTotal transitiveClosureOptimizationThreshold
        automaticLossScalingSettings.updatePeriod
        """.split()
    ),
    "floating point": frozenset(
        """
        outlineSequenceBreakCost outlineThreshold timeLimitScheduler
        automaticLossScalingSettings.thresholdUpperCountProportion automaticLossScalingSettings.binEdgeLocation
        """.split()
    ),
    "string": frozenset(
        """
        log_dir logDir saveInitializersToFile model_name cachePath partialsTypeMatMuls customCodeletCompileFlags
        serializedPoprithmsShiftGraphsDir kahnTieBreaker
        """.split()
    ),
    "set / vector": frozenset(
        """
        accumulateOuterFragmentSettings.excludedVirtualGraphs dotChecks hardwareInstrumentations customCodelets
        updatableNamedBuffers
        """.split()
    ),
    "map": frozenset(
        """
        engineOptions reportOptions convolutionOptions matmulOptions lstmOptions gclOptions ipuof_configs
        """.split()
    ),
}
_COUNTS = frozenset("device_iterations gradient_accumulation replication_factor input_group_size".split())
# Highest value of each option that stands for an enumeration of the device API or of PopART.
_HIGHEST_VALUES = {
    "accumulateOuterFragmentSettings.schedule": 3,
    "accumulationAndReplicationReductionType": 1,
    "accumulation_and_replication_reduction_type": 1,
    "autoRecomputation": 4,
    "autodiffSettings.stitchStrategy": 3,
    "automaticLossScalingSettings.gradientTensorTrackingMethod": 2,
    "batchSerializationSettings.batchSchedule": 3,
    "batchSerializationSettings.method": 2,
    "batchSerializationSettings.transformContext": 1,
    "connection_type": 2,
    "execution_mode": 2,
    "input_cgt": 3,
    "meanAccumulationAndReplicationReductionStrategy": 2,
    "mergeVarUpdate": 3,
    "output_mode": 3,
    "subgraphCopyingStrategy": 1,
    "sync_pattern": 2,
    "syntheticDataMode": 3,
    "tensors_liveness": 3,
    "virtualGraphMode": 3,
}
