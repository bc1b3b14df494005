"""Options: what they mean, what they refuse together, and the device that is asked for."""

from __future__ import annotations

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from porting.diagnostics import OptionError
from porting.options import PortOptions

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


def test_replace_checks_like_the_constructor():
    with pytest.raises(OptionError, match="micro_batch"):
        PortOptions().replace(micro_batch=0)


def test_an_output_period_without_its_mode_is_refused():
    with pytest.raises(OptionError, match="`output_every` is 2 with `output_mode` 'default'"):
        PortOptions(output_every=2, device_iterations=2)


def test_an_output_period_that_leaves_a_rest_is_refused():
    with pytest.raises(OptionError, match="does not divide"):
        PortOptions(output_mode="every_n", output_every=4, accumulation=3, device_iterations=2)


def test_the_environment_names_the_engine_that_nobody_chose(monkeypatch):
    monkeypatch.setenv("PORTING_ENGINE", "auto")

    assert PortOptions().engine == "auto"
    assert PortOptions(engine="ready").engine == "ready"


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
        ("pipeline", "best"),
        ("optimizer_state", "host"),
        ("shard_optimizer_state", 1),
        ("available_memory", 1.5),
        ("available_memory", []),
        ("half_partials", None),
        ("serialize", {"head": 1}),
        ("serialize", ["head"]),
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


@pytest.mark.parametrize("recompute", ["sqrt", "200 MB", "0.5 MB", ["blocks.0"]])
def test_recomputation_is_by_root_budget_or_name(recompute):
    assert PortOptions(recompute=recompute).recompute in (recompute, tuple(recompute))


def test_no_recomputation_has_a_name():
    assert PortOptions(recompute="none") == PortOptions()


@pytest.mark.parametrize("recompute", ["blocks.0", "200", "-1 MB", "200 GB", "inf MB"])
def test_other_words_for_recomputation_are_refused(recompute):
    with pytest.raises(OptionError, match="'sqrt', or a budget as '200 MB'"):
        PortOptions(recompute=recompute)
