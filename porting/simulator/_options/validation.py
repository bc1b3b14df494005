"""The compiler's check of `Options.toDict()`: every key must be known for the type of its value."""

from __future__ import annotations

from enum import Enum
from typing import Any, Callable, Dict, FrozenSet

from porting.simulator._logging import cpp_log, logger
from porting.simulator.errors import native_error

__all__ = ["validate_options"]


def validate_options(options: Dict[str, Any]) -> None:
    """Raise `Error` for an unknown key, an unsupported type of value or a value out of range.

    Each accepted setting is logged at debug level on the ``poptorch:cpp`` channel.
    """
    if "patterns" in options and "patterns_level" not in options:
        raise native_error("Patterns were given without a level: set patterns_level too")
    for key, value in options.items():
        by_key = _check_dict if key.startswith("location_") else _SPECIAL_KEYS.get(key, _check_by_type)
        by_key(key, value)


def _check_by_type(key: str, value: Any) -> None:
    if isinstance(value, Enum) and not isinstance(value, int):
        value = value.value
    if isinstance(value, bool):
        _require_known(key, "bool", _BOOL_KEYS)
        _log_set(key, "true" if value else "false")
    elif isinstance(value, int):
        _require_known(key, "uint64", _UINT64_KEYS)
        _check_range(key, value)
    elif isinstance(value, str):
        _check_string(key, value)
    elif isinstance(value, float):
        _require_known(key, "floating point", _DOUBLE_KEYS)
        _log_set(key, value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        _require_known(key, "set / vector", _CONTAINER_KEYS)
        for element in value:
            cpp_log("debug", f"poptorch.Options added {element} to {key}")
    elif isinstance(value, dict):
        _require_known(key, "map", _MAP_KEYS)
        _check_map(key, value)
    else:
        raise native_error(f"Unknown value type {type(value)} for option {key}")


def _require_known(key: str, kind: str, known: FrozenSet[str]) -> None:
    if key not in known:
        raise native_error(f"Unknown {kind} option {key} for option of the compiler")


def _check_range(key: str, value: int) -> None:
    if value < 0 or value > _HIGHEST_VALUES.get(key, 2**64 - 1):
        raise native_error(f"Value for {key} out of range: {value}")
    if value == 0 and key in _COUNTS:
        raise native_error(f"Value for {key} out of range: 0. A call runs at least one: set it to 1 or more")
    _log_set(key, value)


def _check_string(key: str, value: str) -> None:
    _require_known(key, "string", _STRING_KEYS)
    if key == "logDir":
        logger.warning("Ignoring the option logDir: use poptorch.Options().logDir()")
        return
    _log_set(key, value)


def _check_map(key: str, value: Dict[Any, Any]) -> None:
    for name, entry in value.items():
        text = str(entry).lower() if isinstance(entry, bool) else entry
        cpp_log("debug", f"poptorch.Options set {key}[{name}] to {text}")


def _check_dict(key: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise native_error(f"Unknown value type {type(value)} for option {key}")
    _check_map(key, value)


def _check_uint64(key: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise native_error(f"Unknown value type {type(value)} for option {key}")
    _check_range(key, value)


def _check_callable(key: str, value: Any) -> None:
    if not callable(value):
        raise native_error(f"Unknown value type {type(value)} for option {key}")


def _log_set(key: str, value: Any) -> None:
    if isinstance(value, Enum):
        value = value.value
    cpp_log("debug", f"poptorch.Options set {key} to value {value}")


_SPECIAL_KEYS: Dict[str, Callable[[str, Any], None]] = {
    "anchored_tensors": _check_dict,
    "available_memory_proportion": _check_dict,
    "compilation_progress_bar_fn": _check_callable,
    "numIOTiles": _check_uint64,
    "patterns": _check_dict,
    "patterns_level": _check_uint64,
}

_BOOL_KEYS = frozenset(
    """
    auto_round_num_ipus use_model serial_phases_execution separate_backward_phase broadcast_buffers enableExplicitIR
    enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState batchSerializationSettings.concatOnVirtualGraphChange
    batchSerializationSettings.concatOnExecutionPhaseChange batchSerializationSettings.concatOnPipelineStageChange
    strictOpVersions opxAliasChecking opxModifyChecking dotOpNames exportPoplarComputationGraph
    exportPoplarVertexGraph separateCallOpPdfs enableOutlining enableOutliningCopyCostPruning rearrangeAnchorsOnHost
    rearrangeStreamsOnHost enablePrefetchDatastreams enableNonStableSoftmax enableReplicatedGraphs
    enableGradientAccumulation instrumentWithHardwareCycleCounter enablePipelining disableGradAccumulationTensorStreams
    disableOptimizerStateTensorStreams compileEngine constantWeights enableEngineCaching enableMergeExchange
    enableFloatingPointChecks enableStochasticRounding ensureFp32LossScaleTensor explicitRecomputation
    enableExplicitMainLoops useHostCopyOps aliasZeroCopy delayVarUpdates enableFullyConnectedPass
    enableSerializedMatmuls enableStableNorm decomposeGradSum enableDistributedReplicatedGraphs groupHostSync
    automaticLossScalingSettings.enabled enableSupportedDataTypeCasting groupNormStridedChannelGrouping
    scheduleNonWeightUpdateGradientConsumersEarly
    replicatedCollectivesSettings.prepareScheduleForMergingCollectives
    replicatedCollectivesSettings.mergeAllReduceCollectives
    """.split()
)
_UINT64_KEYS = frozenset(
    """
    device_iterations num_distributed_processes distributed_process_id ipu_version ipu_id gradient_accumulation
    output_return_period replication_factor input_group_size input_cgt execution_mode tensors_liveness output_mode
    connection_type sync_pattern random_seed max_repeat_logs accumulation_and_replication_reduction_type
    accumulateOuterFragmentSettings.schedule autodiffSettings.stitchStrategy
    batchSerializationSettings.transformContext batchSerializationSettings.method
    batchSerializationSettings.batchSchedule batchSerializationSettings.factor autoRecomputation mergeVarUpdate
    virtualGraphMode syntheticDataMode subgraphCopyingStrategy accumulationAndReplicationReductionType
    meanAccumulationAndReplicationReductionStrategy automaticLossScalingSettings.gradientTensorTrackingMethod
    executionPhaseSettings.phases executionPhaseSettings.stages firstDotOp finalDotOp numIOTiles
    mergeVarUpdateMemThreshold looseThresholdAtPeak accumulationFactor swapLimitScheduler globalReplicationFactor
    globalReplicaOffset defaultBufferingDepth defaultPrefetchBufferingDepth compilationProgressTotal
    transitiveClosureOptimizationThreshold automaticLossScalingSettings.updatePeriod
    """.split()
)
_DOUBLE_KEYS = frozenset(
    """
    outlineSequenceBreakCost outlineThreshold timeLimitScheduler
    automaticLossScalingSettings.thresholdUpperCountProportion automaticLossScalingSettings.binEdgeLocation
    """.split()
)
_STRING_KEYS = frozenset(
    """
    log_dir logDir saveInitializersToFile model_name cachePath partialsTypeMatMuls customCodeletCompileFlags
    serializedPoprithmsShiftGraphsDir kahnTieBreaker
    """.split()
)
_CONTAINER_KEYS = frozenset(
    """
    accumulateOuterFragmentSettings.excludedVirtualGraphs dotChecks hardwareInstrumentations customCodelets
    updatableNamedBuffers
    """.split()
)
_MAP_KEYS = frozenset(
    "engineOptions reportOptions convolutionOptions matmulOptions lstmOptions gclOptions ipuof_configs".split()
)
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
