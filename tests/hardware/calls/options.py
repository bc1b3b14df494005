"""Options: every setter with good and bad values, what they change, what is frozen, and the order they come in."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

# For each setter the arguments to try, the first of them good; "@Name.Member" is an enumeration's member.
_SETTERS: Sequence[Tuple[str, Sequence[Sequence[Any]]]] = (
    ("deviceIterations", [[4], [True], [1.5], ["2"], [None], [-1], []]),
    ("replicationFactor", [[2], [0], [2.0], [None]]),
    (
        "inputReplicaGrouping",
        [
            [1, "@CommGroupType.Consecutive"],
            [1, "@CommGroupType.All"],
            [2, "@CommGroupType.Orthogonal"],
            [4, "@CommGroupType.NoGrouping"],
            [1, 1],
            [1],
        ],
    ),
    ("broadcastBuffers", [[False], [], [0], ["no"]]),
    (
        "outputMode",
        [
            ["@OutputMode.All"],
            ["@OutputMode.EveryN", 2],
            ["@OutputMode.EveryN"],
            ["@OutputMode.EveryN", 0],
            ["@OutputMode.EveryN", -1],
            ["@OutputMode.Final", 3],
            ["@OutputMode.Sum"],
            [2],
            ["All"],
        ],
    ),
    (
        "anchorTensor",
        [["a", "loss"], ["a", "loss", "@OutputMode.EveryN", 3], ["a", "loss", "@OutputMode.Sum", 3], ["a"]],
    ),
    ("randomSeed", [[42], ["42"], [1.0], [True]]),
    (
        "setAvailableMemoryProportion",
        [[{"IPU0": 0.5}], [{"IPU0": 0.5, "IPU1": 0.25}], [{"0": 0.5}], [{"IPUx": 0.5}], [{}], [0.5]],
    ),
    ("connectionType", [["@ConnectionType.OnDemand"], ["@ConnectionType.Never"], [2], ["Never"]]),
    ("syncPattern", [["@SyncPattern.SinglePipeline"], ["@SyncPattern.ReplicaAndLadder"], [1]]),
    ("useIpuModel", [[True], [False], [1]]),
    ("useIpuId", [[3], ["3"], [1.0]]),
    ("useOfflineIpuTarget", [[], [1], ["2"]]),
    ("autoRoundNumIPUs", [[], [False], [1]]),
    ("enableExecutableCaching", [["folder"], [None]]),
    ("enableStableNorm", [[True], [False]]),
    ("enableSyntheticData", [[True], [False]]),
    ("logCycleCount", [[True], [False]]),
    ("updatableNamedBuffers", [[["steps"]]]),
    ("enableProfiling", [["profile"], []]),
    ("logDir", [["logs"], [None], [3]]),
    ("maxRepeatLogs", [[7], [None], ["many"]]),
    ("modelName", [["net"], [3]]),
    ("showCompilationProgressBar", [[False], []]),
    ("relaxOptimizerAttributesChecks", [[], [False]]),
    ("disableModuleNamescope", [[], [True]]),
    ("sourceLocationExcludes", [[["here"]]]),
    ("appendToLocationExcludes", [["here", "there"]]),
    ("setExecutionStrategy", [[None], ["pipelined"]]),
    ("Jit.traceModel", [[False], [True]]),
    ("Precision.halfFloatCasting", [["@HalfFloatCastingBehavior.Default"], [0]]),
    ("Precision.runningStatisticsAlwaysFloat", [[False], [1]]),
    ("Precision.enableFloatingPointExceptions", [[True], [1]]),
    ("Precision.enableStochasticRounding", [[True], [0]]),
    ("Precision.setPartialsType", [[torch.float16], [torch.float32], [torch.float64], ["half"]]),
    ("Training.gradientAccumulation", [[4], [1.0], ["2"], [0]]),
    ("Training.accumulationAndReplicationReductionType", [["@ReductionType.Sum"], ["@ReductionType.NoReduction"], [0]]),
    ("Training.setMeanAccumulationAndReplicationReductionStrategy", [["@MeanReductionStrategy.Running"], [0]]),
    ("Training.setAutomaticLossScaling", [[True], [0]]),
    ("Training.setConvolutionDithering", [[True]]),
    ("Distributed.configureProcessId", [[1, 2], ["1", 2], [1]]),
    ("Distributed.setEnvVarNames", [["NO_SUCH_SIZE", "NO_SUCH_RANK"]]),
    ("Distributed.disable", [[]]),
    ("TensorLocations.numIOTiles", [[64], [16], [194], [33], ["64"]]),
    ("TensorLocations.setActivationLocation", [["@TensorLocationSettings"], [{}]]),
    ("TensorLocations.setWeightLocation", [["@TensorLocationSettings"], [None]]),
    ("TensorLocations.setOptimizerLocation", [["@TensorLocationSettings"]]),
    ("TensorLocations.setAccumulatorLocation", [["@TensorLocationSettings"]]),
    ("_Popart.set", [["autoRecomputation", 3]]),
    ("_Popart.setEngineOptions", [[{"opt.level": "1"}]]),
    ("_Popart.setPatterns", [[{"MatMul": True}], [{"MatMul": True}, 0], [["MatMul"]], [{}, "2"]]),
)
_LOCATIONS: Sequence[Tuple[str, Sequence[Any]]] = (
    ("minElementsForOffChip", [4, "4"]),
    ("minElementsForReplicatedTensorSharding", [16, 1.0]),
    ("useOnChipStorage", [True, False, None, 1]),
    ("useReplicatedTensorSharding", [True, 0]),
    ("useIOTilesToLoad", [False, "yes"]),
    ("useIOTilesToStore", [True, None]),
)


def _argument(poptorch: Any, value: Any) -> Any:
    if value == "@TensorLocationSettings":
        return poptorch.TensorLocationSettings().useOnChipStorage(False).useIOTilesToLoad(True)
    if isinstance(value, str) and value.startswith("@"):
        owner, member = value[1:].split(".")
        return getattr(getattr(poptorch, owner), member)
    return value


def _serialised(options: Any) -> Dict[str, Any]:
    copy = options.clone()
    if copy.defaultOutputMode():
        copy.output_mode = 0
    progress = "compilation_progress_bar_fn"
    return {key: callable(value) if key == progress else value for key, value in copy.toDict().items()}


def _changes(poptorch: Any, options: Any) -> Dict[str, Any]:
    before, after = _serialised(poptorch.Options()), _serialised(options)
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**changed, "lost": sorted(set(before) - set(after))}


def _setting(path: str, values: Sequence[Any], is_frozen: bool = False) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        options = poptorch.Options()
        if is_frozen:
            options._freeze()
        *groups, setter = path.split(".")
        owner = options
        for group in groups:
            owner = getattr(owner, group)
        result = getattr(owner, setter)(*(_argument(poptorch, value) for value in values))
        return {"returns": result is owner, **_changes(poptorch, options)}

    return call


def _location(setter: str, value: Any) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        settings = poptorch.TensorLocationSettings()
        return [getattr(settings, setter)(value) is settings, settings.toDict()]

    return call


def _in_a_row(*settings: Tuple[str, Sequence[Any]]) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        options = poptorch.Options()
        for path, values in settings:
            owner = options
            for name in path.split("."):
                owner = getattr(owner, name)
            owner(*(_argument(poptorch, value) for value in values))
        return _changes(poptorch, options)

    return call


def _with_environment(values: Dict[str, str], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            return read(poptorch)
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                os.environ.update({name: value} if value is not None else {})

    return call


def _from_file(text: str) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        options = poptorch.Options()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "poptorch.conf")
            with open(path, "w") as file:
                file.write(text)
            options.loadFromFile(path)
        return _changes(poptorch, options)

    return call


def _clone_is_apart(poptorch: Any) -> Any:
    options = poptorch.Options().deviceIterations(2)
    options._freeze()
    copy = options.clone()
    copy.deviceIterations(3).Training.gradientAccumulation(5)
    copy._Popart.set("autoRecomputation", 1)
    return [
        options.device_iterations,
        copy.device_iterations,
        options.Training.gradient_accumulation,
        copy.Training.gradient_accumulation,
        "autoRecomputation" in options._Popart.options,
    ]


def _frozen_by_an_executor(poptorch: Any) -> Any:
    options = poptorch.Options()
    poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
    options.Training.gradientAccumulation(2)


def _executors_own(poptorch: Any) -> Any:
    options = poptorch.Options()
    executor = poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
    return [executor.options is options, options.output_mode, executor.options.output_mode]


def _assign(name: str, value: Any) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        options = poptorch.Options()
        setattr(options, name, value)
        return getattr(options, name)

    return call


def _seeded(poptorch: Any) -> Any:
    poptorch.Options().randomSeed(7)
    return torch.initial_seed()


_MORE: Dict[str, Callable[[Any], Any]] = {
    "toDict without an output mode": lambda p: p.Options().toDict(),
    "toDict of new options": lambda p: _serialised(p.Options()),
    "keys of toDict in order": lambda p: list(_serialised(p.Options())),
    "toDict of a group": lambda p: p.Options().Training.toDict(),
    "toDict with a key twice": lambda p: _in_a_row(("_Popart.set", ["device_iterations", 3]))(p),
    "clone is apart and not frozen": _clone_is_apart,
    "an executor freezes its options": _frozen_by_an_executor,
    "an executor has options of its own": _executors_own,
    "a seed seeds torch at once": _seeded,
    "assign an option": _assign("device_iterations", 3),
    "assign an option another type": _assign("device_iterations", "3"),
    "assign an unknown option": _assign("no_such_option", 3),
    "assign an unknown private attribute": _assign("_no_such_option", 3),
    "read an unknown option": lambda p: p.Options().no_such_option,
    "exists": lambda p: [p.Options().exists("device_iterations"), p.Options().exists("random_seed")],
    "call with a name": lambda p: p.Options()("device_iterations"),
    "defaultOutputMode": lambda p: [
        p.Options().defaultOutputMode(),
        p.Options().outputMode(p.OutputMode.All).defaultOutputMode(),
    ],
    "Distributed properties": lambda p: [p.Options().Distributed.processId, p.Options().Distributed.numProcesses],
    "Distributed from OpenMPI": _with_environment(
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, lambda p: _serialised(p.Options())
    ),
    "Distributed disabled in OpenMPI": _with_environment(
        {"OMPI_COMM_WORLD_SIZE": "4"}, lambda p: p.Options().Distributed.disable().numProcesses
    ),
    "cache from the environment": _with_environment(
        {"POPTORCH_CACHE_DIR": "folder"}, lambda p: p.Options()._Popart.options
    ),
    "defaults from the environment": _with_environment(
        {"POPTORCH_DEFAULT_OPTIONS": '{"Training.gradientAccumulation": 8, "outputMode": "OutputMode.All"}'},
        lambda p: [p.Options().Training.gradient_accumulation, p.Options().output_mode],
    ),
    "bad defaults from the environment": _with_environment({"POPTORCH_DEFAULT_OPTIONS": "{"}, lambda p: p.Options()),
    "profiling with an environment of its own": _with_environment(
        {"POPLAR_ENGINE_OPTIONS": '{"autoReport.all": "false"}'}, lambda p: p.Options().enableProfiling().toDict and 1
    ),
    "from_json": lambda p: _changes(
        p, p.Options().from_json('{"deviceIterations": 3, "syncPattern": "SyncPattern.SinglePipeline"}')
    ),
    "from_json with a list": lambda p: _changes(p, p.Options().from_json('{"Distributed.configureProcessId": [1, 2]}')),
    "from_json with an unknown name": lambda p: p.Options().from_json('{"noSuchOption": 3}'),
    "from_json with a bad value": lambda p: p.Options().from_json('{"deviceIterations": "many"}'),
    "from_json with an enumeration and a number": lambda p: p.Options().from_json(
        '{"outputMode": ["OutputMode.EveryN", 2]}'
    ),
    "loadFromFile": _from_file("# a comment\n\ndeviceIterations(3)\nTraining.gradientAccumulation(2)\n"),
    "loadFromFile with an enumeration": _from_file("outputMode(poptorch.OutputMode.All)\n"),
    "loadFromFile that is no Python": _from_file("deviceIterations(3\n"),
    "loadFromFile with an unknown name": _from_file("noSuchOption(3)\n"),
    "loadFromFile that is not there": lambda p: p.Options().loadFromFile("no_such_file.conf"),
    "grouping before replication": _in_a_row(
        ("inputReplicaGrouping", [2, "@CommGroupType.Consecutive"]), ("replicationFactor", [4])
    ),
    "replication before grouping": _in_a_row(
        ("replicationFactor", [4]), ("inputReplicaGrouping", [2, "@CommGroupType.Orthogonal"])
    ),
    "grouping that does not divide": _in_a_row(
        ("replicationFactor", [4]), ("inputReplicaGrouping", [3, "@CommGroupType.Consecutive"])
    ),
    "grouping with zero": _in_a_row(
        ("replicationFactor", [4]), ("inputReplicaGrouping", [0, "@CommGroupType.Consecutive"])
    ),
    "partials after dithering": _in_a_row(
        ("Training.setConvolutionDithering", [True]), ("Precision.setPartialsType", [torch.float16])
    ),
    "dithering after partials": _in_a_row(
        ("Precision.setPartialsType", [torch.float16]), ("Training.setConvolutionDithering", [True])
    ),
    "output mode twice": _in_a_row(("outputMode", ["@OutputMode.EveryN", 3]), ("outputMode", ["@OutputMode.All"])),
    "offline and then a connection": _in_a_row(
        ("useOfflineIpuTarget", []), ("connectionType", ["@ConnectionType.Always"])
    ),
    "caching and then none": _in_a_row(("enableExecutableCaching", ["folder"]), ("enableExecutableCaching", [None])),
    "profiling after engine options": _in_a_row(
        ("_Popart.setEngineOptions", [{"opt.level": "1"}]), ("enableProfiling", ["profile"])
    ),
    "an id of another type": _in_a_row(("modelName", ["net"]), ("modelName", [3])),
    "reduction and strategy": _in_a_row(
        ("Training.accumulationAndReplicationReductionType", ["@ReductionType.Sum"]),
        ("Training.setMeanAccumulationAndReplicationReductionStrategy", ["@MeanReductionStrategy.PostAndLoss"]),
    ),
}


def _calls() -> Dict[str, Callable[[Any], Any]]:
    found: Dict[str, Callable[[Any], Any]] = {}
    for path, tried in _SETTERS:
        for values in tried:
            found[f"{path}{_shown(values)}"] = _setting(path, values)
        found[f"{path} of frozen options"] = _setting(path, tried[0], is_frozen=True)
    for setter, tried_values in _LOCATIONS:
        found.update(
            {f"TensorLocationSettings.{setter}({value!r})": _location(setter, value) for value in tried_values}
        )
    return {**found, **_MORE}


def _shown(values: Sequence[Any]) -> str:
    shown: List[str] = [value[1:] if str(value).startswith("@") else repr(value) for value in values]
    return f"({', '.join(shown)})"


CALLS = _calls()
