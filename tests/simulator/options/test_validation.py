"""The compiler's check of options as a dictionary."""

from __future__ import annotations

import pytest
import torch

from porting.simulator import enums, trainingModel
from porting.simulator._logging import _channel
from porting.simulator._options.validation import validate_options
from porting.simulator.errors import Error
from porting.simulator.options import (
    Options,
    ParallelPhasedExecution,
    TensorLocationSettings,
)


@pytest.fixture
def debug_lines(monkeypatch, capsys):
    monkeypatch.setattr(_channel, "level", 1)
    # what another test has left to the garbage collector may complain on the same stream
    return lambda: [line.split("[debug] ")[1] for line in capsys.readouterr().err.splitlines() if "[debug] " in line]


def test_default_options_are_valid():
    validate_options(Options().outputMode(enums.OutputMode.All).toDict())


def test_every_setting_of_the_api_is_valid():
    options = Options().outputMode(enums.OutputMode.EveryN, 2).useIpuModel(True).useIpuId(0).modelName("m")
    options.setExecutionStrategy(ParallelPhasedExecution("a")).useOfflineIpuTarget().enableProfiling()
    options.setAvailableMemoryProportion({"IPU0": 0.1}).enableExecutableCaching("x").updatableNamedBuffers(["b"])
    options.enableStableNorm(True).enableSyntheticData(True).logCycleCount(True)
    options.createOrSet(random_seed=3).anchorTensor("a", "b")
    options.Precision.enableFloatingPointExceptions(True).enableStochasticRounding(True).setPartialsType(torch.half)
    options.Training.setAutomaticLossScaling(True).setConvolutionDithering(True)
    options.TensorLocations.numIOTiles(32).setWeightLocation(TensorLocationSettings().useOnChipStorage())
    options._Popart.setPatterns({"PadSum": False})

    validate_options(options.toDict())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        (3, "uint64"),
        (enums.OutputMode.All, "uint64"),
        ("x", "string"),
        (0.5, "floating point"),
        ([1], "set / vector"),
        ({1}, "set / vector"),
        ({"a": 1}, "map"),
    ],
)
def test_unknown_key_is_an_error_that_names_the_type(value, kind):
    with pytest.raises(Error, match=f"Unknown {kind} option wibble for option "):
        validate_options({"wibble": value})


def test_member_of_a_plain_enumeration_counts_as_its_value():
    with pytest.raises(Error, match="Unknown string option wibble for option "):
        validate_options({"wibble": enums.OverlapMode.NoOverlap})


def test_key_of_another_type_is_unknown():
    with pytest.raises(Error, match="Unknown floating point option device_iterations for option "):
        validate_options({"device_iterations": 1.0})


@pytest.mark.parametrize("value", [torch.zeros(1), None, object()])
def test_value_of_no_known_type_is_an_error(value):
    with pytest.raises(Error, match="Unknown value type .* for option autoRecomputation"):
        validate_options({"autoRecomputation": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("patterns_level", "2"),
        ("numIOTiles", True),
        ("available_memory_proportion", 0.5),
        ("location_weight", 1),
        ("compilation_progress_bar_fn", 1),
    ],
)
def test_special_key_needs_its_type(key, value):
    with pytest.raises(Error, match=f"Unknown value type .* for option {key}"):
        validate_options({key: value})


@pytest.mark.parametrize(
    ("key", "value"), [("syntheticDataMode", 4), ("output_mode", 4), ("device_iterations", -1), ("random_seed", 2**64)]
)
def test_number_out_of_range_is_an_error(key, value):
    with pytest.raises(Error, match=f"Value for {key} out of range"):
        validate_options({key: value})


@pytest.mark.parametrize(
    ("setter", "key"),
    [
        (lambda options: options.deviceIterations(0), "device_iterations"),
        (lambda options: options.replicationFactor(0), "replication_factor"),
        (lambda options: options.Training.gradientAccumulation(0), "gradient_accumulation"),
    ],
)
def test_a_call_of_no_micro_batches_does_not_compile(setter, key):
    options = Options()
    setter(options)
    model = torch.nn.Linear(1, 1)

    with pytest.raises(Error, match=f"Value for {key} out of range: 0. A call runs at least one"):
        trainingModel(model, options)(torch.ones(1, 1))


def test_patterns_need_a_level():
    with pytest.raises(Error, match="patterns_level"):
        validate_options({"patterns": {}})


def test_log_directory_of_the_compiler_is_ignored_with_a_warning(caplog):
    validate_options({"logDir": "x"})

    assert caplog.messages == ["Ignoring the option logDir: use poptorch.Options().logDir()"]


def test_settings_are_logged_at_debug_level(debug_lines):
    validate_options(
        {
            "use_model": True,
            "device_iterations": 2,
            "log_dir": ".",
            "timeLimitScheduler": 0.5,
            "patterns_level": 1,
            "patterns": {"PadSum": False},
            "dotChecks": ["Fwd"],
        }
    )

    assert debug_lines() == [
        "poptorch.Options set use_model to value true",
        "poptorch.Options set device_iterations to value 2",
        "poptorch.Options set log_dir to value .",
        "poptorch.Options set timeLimitScheduler to value 0.5",
        "poptorch.Options set patterns_level to value 1",
        "poptorch.Options set patterns[PadSum] to false",
        "poptorch.Options added Fwd to dotChecks",
    ]
