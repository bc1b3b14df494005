"""Options: what they mean, what they refuse, and what becomes of them for the vendor."""

from __future__ import annotations

import dataclasses
import os
from types import SimpleNamespace

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from porting.diagnostics import OptionError
from porting.options import PortOptions, requested_device, require_precision, to_poptorch

COUNTS = st.integers(min_value=1, max_value=64)


@hypothesis.given(micro=COUNTS, accumulation=COUNTS, replicas=COUNTS, iterations=COUNTS)
def test_a_call_is_made_of_whole_steps_and_of_whole_micro_batches(micro, accumulation, replicas, iterations):
    options = PortOptions(micro_batch=micro, accumulation=accumulation, replicas=replicas, device_iterations=iterations)

    assert options.samples_per_call == options.samples_per_step * iterations
    assert options.samples_per_call == options.micro_batches_per_call * micro
    assert options.samples_per_inference_call * accumulation == options.samples_per_call


def test_options_cannot_be_changed_afterwards():
    options = PortOptions()

    with pytest.raises(dataclasses.FrozenInstanceError):
        options.micro_batch = 2


def test_replace_makes_changed_options_and_leaves_the_old_ones():
    options = PortOptions(micro_batch=4, seed=7)

    changed = options.replace(replicas=2)

    assert (changed.micro_batch, changed.replicas, changed.seed) == (4, 2, 7)
    assert options.replicas == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("micro_batch", 0),
        ("accumulation", -1),
        ("replicas", 1.0),
        ("device_iterations", True),
        ("output_every", "2"),
        ("output_mode", "last"),
        ("reduction", None),
        ("precision", "int8"),
        ("precision", ["float16"]),
        ("broadcast_buffers", 1),
        ("seed", -1),
        ("seed", 2**64),
        ("cache_dir", ""),
        ("cache_dir", 3),
        ("engine", ""),
        ("tuning_seconds", 0),
        ("tuning_seconds", True),
        ("tuning_seconds", float("inf")),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(OptionError) as caught:
        PortOptions(**{name: value})

    assert caught.value.code == "P002"
    assert caught.value.finding.message == f"`{name}` is {value!r}"
    assert caught.value.finding.help[0].startswith(f"accepted values of {name}: ")
    assert caught.value.finding.place.file == __file__


def test_all_wrong_values_are_named_at_once():
    with pytest.raises(OptionError) as caught:
        PortOptions(replicas=0, precision="int8", seed="x")

    assert caught.value.finding.notes == ("`replicas` is 0", "`precision` is 'int8'", "`seed` is 'x'")


def test_replace_checks_like_the_constructor():
    with pytest.raises(OptionError, match="micro_batch"):
        PortOptions().replace(micro_batch=0)


def test_an_output_period_without_its_mode_is_refused():
    with pytest.raises(OptionError, match="`output_every` is 2 with `output_mode` 'default'"):
        PortOptions(output_every=2, device_iterations=2)


def test_an_output_period_that_leaves_a_rest_is_refused():
    with pytest.raises(OptionError, match="does not divide"):
        PortOptions(output_mode="every_n", output_every=4, accumulation=3, device_iterations=2)


def test_training_options_become_the_vendors(poptorch):
    options = PortOptions(
        accumulation=4,
        replicas=2,
        device_iterations=3,
        output_mode="every_n",
        output_every=2,
        reduction="sum",
        broadcast_buffers=False,
        seed=11,
    )

    vendor = to_poptorch(options, poptorch, training=True)

    assert (vendor.device_iterations, vendor.replication_factor) == (3, 2)
    assert vendor.Training.gradient_accumulation == 4
    assert vendor.Training.accumulation_and_replication_reduction_type == poptorch.ReductionType.Sum
    assert (vendor.output_mode, vendor.output_return_period) == (poptorch.OutputMode.EveryN, 2)
    assert vendor.broadcast_buffers is False
    assert vendor.random_seed == 11


@pytest.mark.parametrize(
    ("ours", "theirs"), [("default", "Default"), ("final", "Final"), ("all", "All"), ("sum", "Sum")]
)
def test_each_output_mode_has_its_counterpart(poptorch, ours, theirs):
    vendor = to_poptorch(PortOptions(output_mode=ours), poptorch, training=True)

    assert vendor.output_mode == getattr(poptorch.OutputMode, theirs)


def test_inference_accumulates_nothing_and_returns_every_row(poptorch):
    options = PortOptions(accumulation=4, device_iterations=3, output_mode="sum")

    vendor = to_poptorch(options, poptorch, training=False)

    assert vendor.Training.gradient_accumulation == 1
    assert vendor.device_iterations == 3
    assert vendor.output_mode == poptorch.OutputMode.All


def test_the_cache_folder_reaches_the_vendor(poptorch, tmp_path):
    vendor = to_poptorch(PortOptions(cache_dir=tmp_path), poptorch, training=True)

    assert vendor._Popart.options["cachePath"] == os.fspath(tmp_path)


def test_a_seed_leaves_the_global_generator_alone(poptorch):
    torch.manual_seed(5)
    before = torch.get_rng_state()

    to_poptorch(PortOptions(seed=11), poptorch, training=True)

    assert torch.equal(torch.get_rng_state(), before)


def test_the_simulator_is_told_the_engine():
    chosen = []
    vendor = SimpleNamespace(useEngine=lambda name, tuning_seconds: chosen.append((name, tuning_seconds)))

    to_poptorch(PortOptions(engine="reference", tuning_seconds=9.0), _backend(vendor), training=False)

    assert chosen == [("reference", 9.0)]


def test_the_environment_names_the_engine_that_nobody_chose(monkeypatch):
    monkeypatch.setenv("PORTING_ENGINE", "auto")

    assert PortOptions().engine == "auto"
    assert PortOptions(engine="ready").engine == "ready"


def test_an_engine_that_the_environment_names_is_no_fault_of_a_backend_that_has_only_its_own(monkeypatch):
    monkeypatch.setenv("PORTING_ENGINE", "aot")

    to_poptorch(PortOptions(), _backend(SimpleNamespace()), training=False)


def test_an_engine_is_refused_where_the_backend_has_only_its_own():
    with pytest.raises(OptionError) as caught:
        to_poptorch(PortOptions(engine="reference"), _backend(SimpleNamespace()), training=False)

    assert caught.value.code == "P004"
    assert "`vendor` has only its own" in caught.value.finding.message


def test_bfloat16_is_an_error_and_not_read_as_float32():
    with pytest.raises(OptionError) as caught:
        to_poptorch(PortOptions(precision="bfloat16"), _backend(SimpleNamespace()), training=True)

    assert caught.value.code == "P001"
    assert "float16" in caught.value.finding.help[0]


def test_a_backend_that_has_bfloat16_is_asked_for_it(poptorch):
    vendor = to_poptorch(PortOptions(precision="bfloat16"), poptorch, training=True)

    assert vendor._autocast == torch.bfloat16


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16", "mixed"])
def test_other_precisions_are_accepted(precision, poptorch):
    require_precision(PortOptions(precision=precision), poptorch)

    assert PortOptions(precision=precision).precision == precision


def test_the_device_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "sim")

    assert requested_device() == "sim"


def test_an_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "nonsense")

    assert requested_device("ipu") == "ipu"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_without_a_choice_the_device_is_auto(monkeypatch, value):
    monkeypatch.delenv("PORTING_DEVICE", raising=False)
    if value is not None:
        monkeypatch.setenv("PORTING_DEVICE", value)

    assert requested_device() == "auto"


def test_an_unknown_device_in_the_environment_is_named(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "gpu")

    with pytest.raises(OptionError, match="PORTING_DEVICE is 'gpu'") as caught:
        requested_device()

    assert caught.value.code == "P005"


def test_an_unknown_device_argument_is_named():
    with pytest.raises(OptionError, match="`device` is 'gpu'") as caught:
        requested_device("gpu")

    assert caught.value.code == "P002"


def _backend(vendor):
    vendor.deviceIterations = vendor.replicationFactor = vendor.broadcastBuffers = vendor.outputMode = lambda _: None
    return SimpleNamespace(__name__="vendor", Options=lambda: vendor, OutputMode=SimpleNamespace(All=4))
