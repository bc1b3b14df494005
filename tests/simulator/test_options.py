"""`Options` and its groups: defaults, setters, checks, freezing, copies and text."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest
import torch

from porting.diagnostics import OptionError
from porting.simulator import enums
from porting.simulator._options.simulator_options import read_extras
from porting.simulator._options_impl import OptionsDict
from porting.simulator.options import Options, TensorLocationSettings, _DistributedOptions


@pytest.fixture
def info_log(caplog):
    caplog.set_level(logging.INFO, logger="poptorch::python")
    return caplog


@pytest.fixture
def keep_seed():
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


# -- OptionsDict ---------------------------------------------------------------------------------------------------


def test_unknown_option_is_refused_with_the_valid_ones():
    with pytest.raises(AssertionError, match=r"Invalid option wibble, valid options are \['size'\]"):
        OptionsDict(size=1).set(wibble=2)


def test_value_of_another_type_is_refused():
    with pytest.raises(
        AssertionError, match=r"Unexpected type <class 'float'> for option size\. Expected <class 'int'>"
    ):
        OptionsDict(size=1).set(size=2.0)


def test_bool_is_accepted_for_a_number():
    assert OptionsDict(size=1).set(size=True).size is True


def test_value_is_set_by_assignment():
    options = OptionsDict(size=1)

    options.size = 5

    assert options("size") == 5


def test_assignment_to_an_unknown_name_is_refused():
    with pytest.raises(AssertionError, match="Invalid option wibble"):
        OptionsDict(size=1).wibble = 2


def test_assignment_to_an_unknown_private_name_is_refused():
    with pytest.raises(AttributeError, match="Invalid private attribute _wibble. Valid attributes: "):
        OptionsDict(size=1)._wibble = 2


def test_reading_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"Invalid attribute wibble\."):
        OptionsDict(size=1).wibble  # noqa: B018


def test_create_or_set_creates_once_and_checks_the_type_afterwards():
    options = OptionsDict().createOrSet(name="a")

    with pytest.raises(AssertionError, match="Unexpected type"):
        options.createOrSet(name=1)


def test_deleted_option_does_not_exist():
    options = OptionsDict(size=1)

    options.deleteIfExists("size")
    options.deleteIfExists("size")

    assert not options.exists("size")


def test_update_refuses_common_keys():
    with pytest.raises(AssertionError, match="Can't merge dictionaries, they have some keys in common"):
        OptionsDict(size=1).update({"size": 2})


def test_update_merges_into_the_other_dictionary():
    other = {"a": 1}

    assert OptionsDict(size=2).update(other) is other
    assert other == {"a": 1, "size": 2}


@pytest.mark.parametrize(
    "change",
    [
        lambda options: options.set(size=2),
        lambda options: options.createOrSet(other=2),
        lambda options: options.deleteIfExists("size"),
        lambda options: setattr(options, "size", 2),
        lambda options: setattr(options, "_warnings", {}),
    ],
    ids=["set", "create", "delete", "assign", "assign private"],
)
def test_frozen_options_refuse_every_change(change):
    options = OptionsDict(size=1)
    options._freeze()

    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        change(options)


def test_unfrozen_options_can_be_changed_again():
    options = OptionsDict(size=1)
    options._freeze()

    options._unfreeze()

    assert options.set(size=2).size == 2


def test_class_of_a_group_can_be_replaced():
    class Derived(_DistributedOptions):
        @property
        def numProcesses(self):
            return 7

    options = Options()

    options.Distributed.__class__ = Derived

    assert options.Distributed.numProcesses == 7


# -- defaults and setters ------------------------------------------------------------------------------------------


def test_defaults_are_those_of_poptorch():
    assert Options()._values == {
        "replication_factor": 1,
        "input_group_size": 1,
        "input_cgt": enums.CommGroupType.Consecutive,
        "broadcast_buffers": True,
        "device_iterations": 1,
        "log_dir": ".",
        "max_repeat_logs": 4,
        "auto_round_num_ipus": False,
        "anchored_tensors": {},
        "output_mode": 4,
        "output_return_period": 1,
        "connection_type": 0,
        "sync_pattern": 0,
        "available_memory_proportion": {},
    }


@pytest.mark.parametrize(
    ("setter", "argument", "key", "stored"),
    [
        ("deviceIterations", 8, "device_iterations", 8),
        ("replicationFactor", 4, "replication_factor", 4),
        ("broadcastBuffers", False, "broadcast_buffers", False),
        ("logDir", "/tmp/logs", "log_dir", "/tmp/logs"),
        ("maxRepeatLogs", 7, "max_repeat_logs", 7),
        ("maxRepeatLogs", None, "max_repeat_logs", 2**64 - 1),
        ("autoRoundNumIPUs", True, "auto_round_num_ipus", True),
        ("modelName", "net", "model_name", "net"),
        ("useIpuModel", True, "use_model", True),
        ("useIpuId", 3, "ipu_id", 3),
        ("useOfflineIpuTarget", 21, "ipu_version", 21),
        ("useOfflineIpuTarget", 2, "connection_type", 2),
        ("connectionType", enums.ConnectionType.OnDemand, "connection_type", 1),
        ("syncPattern", enums.SyncPattern.ReplicaAndLadder, "sync_pattern", 2),
        ("outputMode", enums.OutputMode.All, "output_mode", 2),
        ("setAvailableMemoryProportion", {"IPU0": 0.5, "IPU11": 0.1}, "available_memory_proportion", {0: 0.5, 11: 0.1}),
    ],
)
def test_setter_stores_its_value_and_returns_the_options(setter, argument, key, stored):
    options = Options()

    assert getattr(options, setter)(argument) is options
    assert options(key) == stored


@pytest.mark.parametrize(
    ("setter", "argument", "popart"),
    [
        ("enableStableNorm", True, {"enableStableNorm": True}),
        ("enableSyntheticData", True, {"syntheticDataMode": 2}),
        ("enableSyntheticData", False, {"syntheticDataMode": 0}),
        ("logCycleCount", True, {"instrumentWithHardwareCycleCounter": True}),
        ("updatableNamedBuffers", ["mean"], {"updatableNamedBuffers": ["mean"]}),
        ("enableExecutableCaching", "/cache", {"cachePath": "/cache", "enableEngineCaching": True}),
        ("enableExecutableCaching", None, {"enableEngineCaching": False}),
    ],
)
def test_setter_reaches_the_compiler_options(setter, argument, popart):
    options = Options()

    assert getattr(options, setter)(argument) is options
    initial = {"instrumentWithHardwareCycleCounter": False, "rearrangeAnchorsOnHost": False}
    assert options._Popart.options == {**initial, **popart}


@pytest.mark.parametrize(
    ("setter", "arguments"),
    [
        ("deviceIterations", (1.5,)),
        ("replicationFactor", ("2",)),
        ("connectionType", (0,)),
        ("syncPattern", (0,)),
        ("useIpuId", ("0",)),
        ("outputMode", (2,)),
        ("randomSeed", (1.0,)),
        ("setExecutionStrategy", ("sharded",)),
        ("useAutocast", (torch.float16,)),
        ("useEngine", (3,)),
        ("useEngine", ("auto", 0)),
        ("useEngine", ("auto", "long")),
        ("anchorTensor", ("a", "b", 2)),
    ],
)
def test_setter_refuses_a_value_of_another_type(setter, arguments):
    with pytest.raises(AssertionError):
        getattr(Options(), setter)(*arguments)


def test_random_seed_seeds_torch_at_once(keep_seed):
    torch.manual_seed(77)
    expected = torch.rand(3)

    options = Options().randomSeed(77)

    assert options.random_seed == 77
    assert torch.equal(torch.rand(3), expected)


def test_frozen_random_seed_seeds_torch_all_the_same(keep_seed):
    options = Options()
    options._freeze()
    torch.manual_seed(78)
    expected = torch.rand(3)

    with pytest.raises(AttributeError, match="frozen"):
        options.randomSeed(78)

    assert torch.equal(torch.rand(3), expected)


def test_replication_factor_can_be_assigned():
    options = Options()

    options.replication_factor = 4

    assert options.replication_factor == 4


def test_default_output_mode_is_default_until_one_is_chosen():
    options = Options()
    before = options.defaultOutputMode()

    options.outputMode(enums.OutputMode.Final)

    assert (before, options.defaultOutputMode()) == (True, False)
    assert options.output_mode == enums.OutputMode.Final


def test_output_of_every_nth_keeps_its_period():
    options = Options().outputMode(enums.OutputMode.EveryN, 5)

    assert (options.output_mode, options.output_return_period) == (1, 5)


@pytest.mark.parametrize("period", [None, 0, -1])
def test_output_of_every_nth_needs_a_positive_period(period):
    with pytest.raises(
        AssertionError, match="EveryN anchor must have output_return_period set to valid positive integer"
    ):
        Options().outputMode(enums.OutputMode.EveryN, period)


def test_period_of_another_output_mode_is_said_to_be_ignored(info_log):
    Options().outputMode(enums.OutputMode.All, 3)

    assert info_log.messages == ["Anchor return period argument ignored with output_mode set to OutputMode.All"]


def test_anchor_returns_none_and_inherits_the_mode():
    options = Options()

    assert options.anchorTensor("grad", "Gradient___w") is None
    assert options.anchored_tensors == {"grad": ["Gradient___w", True, None, 1]}


@pytest.mark.parametrize(("mode", "period"), [(enums.OutputMode.EveryN, 3), (enums.OutputMode.Sum, 1)])
def test_anchor_keeps_a_period_only_for_every_nth(mode, period):
    options = Options()

    options.anchorTensor("grad", "Gradient___w", output_mode=mode, output_return_period=3)

    assert options.anchored_tensors == {"grad": ["Gradient___w", False, mode, period]}


def test_anchors_of_two_options_are_apart():
    Options().anchorTensor("grad", "Gradient___w")

    assert Options().anchored_tensors == {}


@pytest.mark.parametrize("key", ["IPU", "IPUx"])
def test_memory_proportion_of_an_ipu_without_a_number_is_refused(key):
    with pytest.raises(ValueError, match="invalid literal for int"):
        Options().setAvailableMemoryProportion({key: 0.5})


@pytest.mark.parametrize("key", ["CPU0", 0])
def test_memory_proportion_of_no_ipu_is_refused(key):
    with pytest.raises(AssertionError, match=r'in a dictionary of \{"IPU0": 0.5\} .* Invalid key: ' + str(key)):
        Options().setAvailableMemoryProportion({key: 0.5})


@pytest.mark.parametrize(
    ("size", "kind", "message"),
    [
        (2, enums.CommGroupType.All, "input_group_type cannot be All"),
        (8, enums.CommGroupType.Consecutive, "input_group_size cannot be larger than replication_factor"),
        (3, enums.CommGroupType.Orthogonal, "input_group_size must be a factor of replication_factor"),
    ],
)
def test_input_groups_must_divide_the_replicas(size, kind, message):
    with pytest.raises(ValueError, match=message):
        Options().replicationFactor(4).inputReplicaGrouping(size, kind)


def test_input_groups_are_not_empty():
    with pytest.raises(ZeroDivisionError):
        Options().replicationFactor(4).inputReplicaGrouping(0, enums.CommGroupType.Consecutive)


def test_input_groups_are_stored():
    options = Options().replicationFactor(4).inputReplicaGrouping(2, enums.CommGroupType.Orthogonal)

    assert (options.input_group_size, options.input_cgt) == (2, enums.CommGroupType.Orthogonal)


def test_no_input_grouping_is_groups_of_one():
    options = Options().inputReplicaGrouping(64, enums.CommGroupType.NoGrouping)

    assert (options.input_group_size, options.input_cgt) == (1, enums.CommGroupType.Consecutive)


def test_location_excludes_are_replaced_and_extended_for_one_object_only():
    options = Options().sourceLocationExcludes(["a"]).appendToLocationExcludes("b", "c")

    assert options._source_location_excludes == ["a", "b", "c"]
    assert Options()._source_location_excludes == [
        "install/poptorch",
        "site-packages/torch",
        "site-packages/poptorch",
    ]


def test_engine_of_the_simulator_is_chosen_by_name():
    assert read_extras(Options()).engine == "ready"
    assert read_extras(Options().useEngine("replay")).engine == "replay"


def test_the_environment_names_the_engine_that_nobody_chose(monkeypatch):
    monkeypatch.setenv("PORTING_ENGINE", "aot")

    assert read_extras(Options()).engine == "aot"
    assert read_extras(Options().useEngine("ready")).engine == "ready"


def test_an_engine_that_nobody_has_is_refused_at_once():
    with pytest.raises(OptionError, match="there is no engine called `warp-drive`"):
        Options().useEngine("warp-drive")


def test_the_time_for_tuning_is_chosen_with_the_engine():
    assert read_extras(Options()).tuning_seconds == 180.0
    assert read_extras(Options().useEngine("auto", tuning_seconds=5)).tuning_seconds == 5.0


@pytest.mark.parametrize(
    ("setter", "attribute", "value"),
    [
        ("relaxOptimizerAttributesChecks", "_relax_optimizer_checks", True),
        ("disableModuleNamescope", "_module_namescope_enabled", False),
        ("showCompilationProgressBar", "_show_compilation_progress_bar", True),
    ],
)
def test_switch_is_remembered(setter, attribute, value):
    assert getattr(getattr(Options(), setter)(), attribute) is value


# -- profiling -----------------------------------------------------------------------------------------------------


def test_profiling_is_added_to_other_engine_options():
    options = Options()
    options._Popart.setEngineOptions({"opt.x": "1"})

    options.enableProfiling("/reports")

    assert options._Popart.options["engineOptions"] == {
        "opt.x": "1",
        "debug.allowOutOfMemory": "true",
        "autoReport.directory": "/reports",
        "autoReport.all": "true",
    }


def test_profiling_warns_of_what_the_environment_overrides(monkeypatch, caplog):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "false", "other": "1"}')

    Options().enableProfiling()

    assert caplog.messages == [
        "Profiling setting overridden by environment variable POPLAR_ENGINE_OPTIONS: autoReport.all=false"
    ]


# -- groups --------------------------------------------------------------------------------------------------------


def test_training_defaults_are_those_of_poptorch():
    training = Options().Training

    assert training.gradient_accumulation == 1
    assert training.accumulation_and_replication_reduction_type is enums.ReductionType.Mean
    assert training.meanAccumulationAndReplicationReductionStrategy is enums.MeanReductionStrategy.Post


def test_training_settings_are_stored():
    training = Options().Training

    training.gradientAccumulation(8).accumulationAndReplicationReductionType(enums.ReductionType.Sum)
    training.setMeanAccumulationAndReplicationReductionStrategy(enums.MeanReductionStrategy.Running)

    assert training.toDict() == {
        "gradient_accumulation": 8,
        "accumulation_and_replication_reduction_type": enums.ReductionType.Sum,
        "meanAccumulationAndReplicationReductionStrategy": enums.MeanReductionStrategy.Running,
    }


@pytest.mark.parametrize("reduction", [enums.ReductionType.NoReduction, 1, "mean", None])
def test_gradients_are_reduced_by_mean_or_sum_only(reduction):
    with pytest.raises(
        ValueError, match=r"must be set to poptorch\.ReductionType\.Mean or poptorch\.ReductionType\.Sum"
    ):
        Options().Training.accumulationAndReplicationReductionType(reduction)


def test_mean_reduction_strategy_has_a_type():
    with pytest.raises(AssertionError, match="Unexpected type"):
        Options().Training.setMeanAccumulationAndReplicationReductionStrategy(1)


def test_training_settings_reach_the_compiler_options():
    options = Options()

    options.Training.setAutomaticLossScaling(True).setConvolutionDithering(True)

    assert options._Popart.options["automaticLossScalingSettings.enabled"] is True
    assert options._Popart.options["convolutionOptions"] == {"enableConvDithering": True}


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.float, "float"), (torch.float32, "float"), (torch.half, "half"), (torch.float16, "half")],
)
def test_partials_type_is_float_or_half(dtype, name):
    options = Options()

    options.Precision.setPartialsType(dtype)

    assert options._Popart.options["partialsTypeMatMuls"] == name
    assert options._Popart.options["convolutionOptions"] == {"partialsType": name}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, "half"])
def test_other_partials_types_are_refused(dtype):
    with pytest.raises(ValueError, match=r"parameter to setPartialsType should be eithertorch\.float or torch\.half"):
        Options().Precision.setPartialsType(dtype)


def test_precision_settings_reach_the_compiler_options():
    options = Options()

    options.Precision.enableFloatingPointExceptions(True).enableStochasticRounding(True)

    assert options._Popart.options["enableFloatingPointChecks"] is True
    assert options._Popart.options["enableStochasticRounding"] is True


def test_floating_point_exceptions_need_a_bool():
    with pytest.raises(AssertionError, match="enableFloatingPointExceptions needs to be set to a bool"):
        Options().Precision.enableFloatingPointExceptions(1)


def test_running_statistics_need_a_bool():
    with pytest.raises(ValueError, match="runningStatisticsAlwaysFloat needs to be set to a bool"):
        Options().Precision.runningStatisticsAlwaysFloat(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda options: options.Precision.halfFloatCasting(enums.HalfFloatCastingBehavior.Default),
        lambda options: options.Precision.runningStatisticsAlwaysFloat(True),
        lambda options: options.Jit.traceModel(False),
    ],
    ids=["halfFloatCasting", "runningStatisticsAlwaysFloat", "traceModel"],
)
def test_deprecated_settings_warn_and_change_nothing(call, caplog):
    options = Options()

    call(options)

    assert [message[:12] for message in caplog.messages] == ["[Deprecated]"]
    assert repr(options) == repr(Options())


def test_tracing_front_end_is_gone():
    with pytest.raises(ValueError, match=r"options\.Jit\.traceModel\(True\) is no longer supported"):
        Options().Jit.traceModel(True)


def test_patterns_are_set_with_their_level():
    popart = Options()._Popart.setPatterns({"PadSum": False}, 0)

    assert (popart.options["patterns_level"], popart.options["patterns"]) == (0, {"PadSum": False})


@pytest.mark.parametrize("arguments", [({}, "2"), ([], 2)])
def test_patterns_are_checked(arguments):
    with pytest.raises(AssertionError):
        Options()._Popart.setPatterns(*arguments)


def test_compiler_options_accept_anything():
    value = object()

    assert Options()._Popart.set("whatever", value).options["whatever"] is value


@pytest.mark.parametrize("num_tiles", [32, 100, 192])
def test_io_tiles_are_stored(num_tiles):
    assert Options().TensorLocations.numIOTiles(num_tiles).toDict() == {"numIOTiles": num_tiles}


@pytest.mark.parametrize("num_tiles", [10, 33, 193, 194])
def test_io_tiles_are_even_and_in_range(num_tiles):
    with pytest.raises(AssertionError, match=r"numIOTiles must be an even number between 32 and 192\."):
        Options().TensorLocations.numIOTiles(num_tiles)


@pytest.mark.parametrize(
    ("setter", "key"),
    [
        ("setActivationLocation", "location_activation"),
        ("setWeightLocation", "location_weight"),
        ("setOptimizerLocation", "location_optimizer"),
        ("setAccumulatorLocation", "location_accumulator"),
    ],
)
def test_tensor_locations_are_stored_as_dictionaries(setter, key):
    locations = Options().TensorLocations

    getattr(locations, setter)(TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(4))

    assert locations.toDict() == {key: {"onChip": 0, "minElementsForOffChip": 4}}


def test_tensor_locations_have_a_type():
    with pytest.raises(AssertionError, match="TensorLocationSettings"):
        Options().TensorLocations.setWeightLocation({"onChip": 0})


def test_location_settings_store_flags_as_numbers():
    settings = TensorLocationSettings().useReplicatedTensorSharding().useIOTilesToLoad().useIOTilesToStore(False)

    assert settings.minElementsForReplicatedTensorSharding(9).toDict() == {
        "useReplicatedTensorSharding": 1,
        "useIOTilesToLoad": 1,
        "useIOTilesToStore": 0,
        "minElementsForReplicatedTensorSharding": 9,
    }


def test_storage_left_to_the_compiler_is_not_stored():
    assert TensorLocationSettings().useOnChipStorage().useOnChipStorage(None).toDict() == {}


def test_settings_of_a_location_can_be_given_by_their_names():
    settings = TensorLocationSettings(onChip=1, useIOTilesToLoad=0)

    assert settings.toDict() == {"onChip": 1, "useIOTilesToLoad": 0}
    assert settings.useOnChipStorage(False).toDict()["onChip"] == 0


@pytest.mark.parametrize(
    ("setter", "value"), [("minElementsForOffChip", 1.0), ("useOnChipStorage", 1), ("useIOTilesToLoad", None)]
)
def test_location_settings_are_checked(setter, value):
    with pytest.raises(AssertionError, match="Expected"):
        getattr(TensorLocationSettings(), setter)(value)


# -- several processes and the environment -------------------------------------------------------------------------


def test_process_comes_from_the_environment_of_the_launcher(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")

    distributed = Options().Distributed

    assert (distributed.numProcesses, distributed.processId) == (4, 3)


def test_process_can_be_configured_from_other_variables(monkeypatch):
    monkeypatch.setenv("WORLD", "2")
    monkeypatch.setenv("RANK", "1")

    distributed = Options().Distributed.setEnvVarNames("WORLD", "RANK")

    assert (distributed.num_distributed_processes, distributed.distributed_process_id) == (2, 1)


def test_disabled_distribution_is_one_process():
    distributed = Options().Distributed.configureProcessId(1, 2).disable()

    assert (distributed.numProcesses, distributed.processId) == (1, 0)


def test_derived_distributed_options_may_forbid_configuring():
    class Fixed(_DistributedOptions):
        def configureProcessId(self, process_id, num_processes):
            raise RuntimeError("Cannot call `configureProcessId`")

        def setEnvVarNames(self, var_num_processes, var_process_id):
            raise RuntimeError("Cannot call `setEnvVarNames`")

    assert Fixed().numProcesses == 1


def test_cache_directory_comes_from_the_environment(monkeypatch, info_log):
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "/cache")

    assert Options()._Popart.options["cachePath"] == "/cache"
    assert "/cache" in info_log.text


def test_default_options_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 3}')

    assert Options().device_iterations == 3


# -- freezing and copies -------------------------------------------------------------------------------------------

SETTERS = {
    "appendToLocationExcludes": lambda o: o.appendToLocationExcludes("x"),
    "autoRoundNumIPUs": lambda o: o.autoRoundNumIPUs(),
    "broadcastBuffers": lambda o: o.broadcastBuffers(False),
    "connectionType": lambda o: o.connectionType(enums.ConnectionType.OnDemand),
    "deviceIterations": lambda o: o.deviceIterations(2),
    "disableModuleNamescope": lambda o: o.disableModuleNamescope(),
    "enableExecutableCaching": lambda o: o.enableExecutableCaching("x"),
    "enableProfiling": lambda o: o.enableProfiling(),
    "enableStableNorm": lambda o: o.enableStableNorm(True),
    "enableSyntheticData": lambda o: o.enableSyntheticData(True),
    "from_json": lambda o: o.from_json('{"deviceIterations": 2}'),
    "inputReplicaGrouping": lambda o: o.inputReplicaGrouping(1, enums.CommGroupType.Consecutive),
    "logCycleCount": lambda o: o.logCycleCount(True),
    "logDir": lambda o: o.logDir("x"),
    "maxRepeatLogs": lambda o: o.maxRepeatLogs(1),
    "modelName": lambda o: o.modelName("x"),
    "outputMode": lambda o: o.outputMode(enums.OutputMode.All),
    "relaxOptimizerAttributesChecks": lambda o: o.relaxOptimizerAttributesChecks(),
    "replicationFactor": lambda o: o.replicationFactor(2),
    "setAvailableMemoryProportion": lambda o: o.setAvailableMemoryProportion({"IPU0": 0.1}),
    "setExecutionStrategy": lambda o: o.setExecutionStrategy(Options()._execution_strategy),
    "showCompilationProgressBar": lambda o: o.showCompilationProgressBar(False),
    "sourceLocationExcludes": lambda o: o.sourceLocationExcludes([]),
    "syncPattern": lambda o: o.syncPattern(enums.SyncPattern.Full),
    "updatableNamedBuffers": lambda o: o.updatableNamedBuffers(["x"]),
    "useComputationOrder": lambda o: o.useComputationOrder("chen"),
    "useAutocast": lambda o: o.useAutocast(torch.bfloat16),
    "useEngine": lambda o: o.useEngine("replay"),
    "useIpuId": lambda o: o.useIpuId(1),
    "useIpuModel": lambda o: o.useIpuModel(True),
    "useOfflineIpuTarget": lambda o: o.useOfflineIpuTarget(),
    "assignment": lambda o: setattr(o, "replication_factor", 2),
    "Distributed.configureProcessId": lambda o: o.Distributed.configureProcessId(0, 2),
    "Distributed.disable": lambda o: o.Distributed.disable(),
    "Precision.enableFloatingPointExceptions": lambda o: o.Precision.enableFloatingPointExceptions(True),
    "Precision.enableStochasticRounding": lambda o: o.Precision.enableStochasticRounding(True),
    "Precision.setPartialsType": lambda o: o.Precision.setPartialsType(torch.half),
    "TensorLocations.numIOTiles": lambda o: o.TensorLocations.numIOTiles(32),
    "TensorLocations.setWeightLocation": lambda o: o.TensorLocations.setWeightLocation(TensorLocationSettings()),
    "Training.accumulationAndReplicationReductionType": lambda o: o.Training.accumulationAndReplicationReductionType(
        enums.ReductionType.Sum
    ),
    "Training.gradientAccumulation": lambda o: o.Training.gradientAccumulation(2),
    "Training.setAutomaticLossScaling": lambda o: o.Training.setAutomaticLossScaling(True),
    "Training.setConvolutionDithering": lambda o: o.Training.setConvolutionDithering(True),
    "_Popart.set": lambda o: o._Popart.set("x", 1),
    "_Popart.setEngineOptions": lambda o: o._Popart.setEngineOptions({}),
    "_Popart.setPatterns": lambda o: o._Popart.setPatterns({}),
}


@pytest.mark.parametrize("setter", sorted(SETTERS))
def test_frozen_options_refuse_the_setter(setter):
    options = Options()
    options._freeze()
    before = repr(options)

    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        SETTERS[setter](options)

    assert repr(options) == before


@pytest.mark.parametrize(
    "setter",
    [
        lambda o: o.anchorTensor("a", "loss"),
        lambda o: o.Jit.traceModel(False),
        lambda o: o.Precision.halfFloatCasting(0),
        lambda o: o.Precision.runningStatisticsAlwaysFloat(True),
    ],
)
def test_frozen_options_do_not_refuse_what_poptorch_does_not_check(setter):
    options = Options()
    options._freeze()

    setter(options)


@pytest.mark.parametrize("setter", sorted(SETTERS))
def test_clone_of_frozen_options_accepts_the_setter_and_leaves_the_original_alone(setter):
    options = Options()
    options._freeze()
    before = repr(options)

    SETTERS[setter](options.clone())

    assert repr(options) == before


def test_copy_shares_compiler_options_between_its_groups_only():
    options = Options()
    duplicate = copy.deepcopy(options)

    duplicate.Precision.enableStochasticRounding(True)

    assert duplicate._Popart.options["enableStochasticRounding"] is True
    assert "enableStochasticRounding" not in options._Popart.options


def test_options_survive_pickling_with_everything():
    options = Options().deviceIterations(3).useEngine("replay")
    options.Training.gradientAccumulation(5)
    options._freeze()

    again = pickle.loads(pickle.dumps(options))

    assert repr(again) == repr(options)
    assert (read_extras(again).engine, again._is_frozen, again.Training._is_frozen) == ("replay", True, True)


def test_unpickled_groups_still_write_to_the_compiler_options():
    again = pickle.loads(pickle.dumps(Options()))

    again.Training.setAutomaticLossScaling(True)

    assert again._Popart.options["automaticLossScalingSettings.enabled"] is True


# -- text and dictionary -------------------------------------------------------------------------------------------


def test_text_lists_values_and_groups():
    options = Options().replicationFactor(4)

    text = f"{options}"

    assert text.startswith("Options(replication_factor=4, ")
    assert hex(id(options)) not in text
    positions = [
        text.index(f", {group}=_")
        for group in ("Distributed", "Jit", "Precision", "TensorLocations", "Training", "_Popart")
    ]
    assert positions == sorted(positions)


def test_equally_configured_options_have_equal_text():
    assert str(Options().deviceIterations(2)) == str(Options().deviceIterations(2))


@pytest.mark.parametrize(
    "change",
    [
        lambda options: options.deviceIterations(2),
        lambda options: options.Training.gradientAccumulation(2),
        lambda options: options._Popart.set("autoRecomputation", 1),
        lambda options: options.TensorLocations.numIOTiles(64),
        lambda options: options.Distributed.configureProcessId(0, 2),
    ],
)
def test_differently_configured_options_have_different_text(change):
    options = Options()

    change(options)

    assert str(options) != str(Options())


def test_dictionary_needs_an_output_mode():
    with pytest.raises(AssertionError, match="An output mode must be picked before serialisation"):
        Options().toDict()


def test_dictionary_merges_all_groups():
    options = Options().outputMode(enums.OutputMode.All).showCompilationProgressBar(False)
    options.TensorLocations.numIOTiles(32)

    values = options.toDict()

    assert values["execution_mode"] == 0
    assert values["gradient_accumulation"] == 1
    assert values["num_distributed_processes"] == 1
    assert values["numIOTiles"] == 32
    assert values["rearrangeAnchorsOnHost"] is False
    assert "compilation_progress_bar_fn" not in values
    assert "_engine" not in values


def test_dictionary_has_a_progress_bar_function_if_one_is_shown(capsys):
    report = Options().outputMode(enums.OutputMode.All).toDict()["compilation_progress_bar_fn"]

    report(0, 2)
    report(2, 2)

    assert "Graph compilation: 100%" in capsys.readouterr().err
    assert report.compilation_time.total_seconds() >= 0
