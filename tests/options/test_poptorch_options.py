"""Options as the vendor spells them."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from porting.diagnostics import OptionError
from porting.options import PortOptions, require_precision, to_poptorch
from porting.simulator._options.simulator_options import read_extras


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
    vendor = SimpleNamespace(useEngine=lambda *args, **kwargs: chosen.append((*args, *kwargs.values())))

    to_poptorch(PortOptions(engine="reference", tuning_seconds=9.0), _backend(vendor), training=False)
    to_poptorch(PortOptions(engine=None), _backend(vendor), training=False)

    assert chosen == [("reference", 9.0, True), ("auto", 180.0, False)]


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

    assert read_extras(vendor).autocast == torch.bfloat16


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16", "mixed"])
def test_other_precisions_are_accepted(precision, poptorch):
    require_precision(PortOptions(precision=precision), poptorch)

    assert PortOptions(precision=precision).precision == precision


def _backend(vendor):
    vendor.deviceIterations = vendor.replicationFactor = vendor.broadcastBuffers = vendor.outputMode = lambda _: None
    return SimpleNamespace(__name__="vendor", Options=lambda: vendor, OutputMode=SimpleNamespace(All=4))


def test_where_the_optimizers_state_lies_reaches_the_vendor(poptorch):
    options = PortOptions(optimizer_state="off_chip", shard_optimizer_state=True)

    vendor = to_poptorch(options, poptorch, training=True)

    wanted = poptorch.Options()
    wanted.TensorLocations.setOptimizerLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(False).useReplicatedTensorSharding(True)
    )
    assert repr(vendor.TensorLocations) == repr(wanted.TensorLocations)


def test_inference_has_no_optimizers_state(poptorch):
    plain, off_chip = (
        to_poptorch(PortOptions(optimizer_state=place), poptorch, training=False) for place in ("on_chip", "off_chip")
    )

    assert repr(plain.TensorLocations) == repr(off_chip.TensorLocations)


@pytest.mark.parametrize(
    ("shares", "theirs"), [(0.25, {0: 0.25, 1: 0.25}), ([0.1, 0.6], {0: 0.1, 1: 0.6})], ids=["all", "each"]
)
def test_the_available_memory_reaches_each_ipu(poptorch, shares, theirs):
    options = PortOptions(available_memory=shares, stages={"1": 1}, accumulation=3)

    vendor = to_poptorch(options, poptorch, training=True)

    assert vendor.available_memory_proportion == theirs


def test_half_partials_reach_the_vendor(poptorch):
    vendor = to_poptorch(PortOptions(half_partials=True), poptorch, training=True)

    wanted = poptorch.Options()
    wanted.Precision.setPartialsType(torch.half)
    assert vendor._Popart.options["partialsTypeMatMuls"] == wanted._Popart.options["partialsTypeMatMuls"] == "half"
