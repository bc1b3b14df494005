"""What changed is named in plain words, section by section of the key, most telling first."""

from __future__ import annotations

import copy

import pytest

from porting.executables.machine import describe_processor, list_versions
from tests.executables.key_changes import CONFIG, changed, program, texts, with_dropout


def test_nothing_changed_is_no_change(components):
    assert texts(components, components) == []


def test_the_batch_is_one_change_and_sizes_that_follow_are_none(components):
    components["graph"]["operators"].insert(0, ["aten.view.default", {"self": {"%": 2}, "size": [16, 4]}])
    new = changed(components, "tensors", "inputs", 0, 1, to=[32, 4])
    new["graph"]["operators"][0][1]["size"] = [32, 4]

    assert texts(components, new) == ["batch 16 -> 32"]


def test_another_shape_of_an_input_is_shown(components):
    new = changed(components, "tensors", "inputs", 0, 1, to=[16, 6])

    assert texts(components, new) == ["input `x` shape [16, 4] -> [16, 6]"]


def test_a_type_is_a_change(components):
    new = changed(components, "tensors", "inputs", 0, 3, to="float16")

    assert texts(components, new) == ["input `x` dtype float32 -> float16"]


def test_parameters_of_another_type_are_one_change(components):
    new = copy.deepcopy(components)
    for parameter in new["tensors"]["parameters"]:
        parameter[3] = "bfloat16"

    assert texts(components, new) == ["dtype of parameters float32 -> bfloat16 (fc.weight, fc.bias)"]


def test_a_constant_with_another_value_shows_it_where_it_is_small(components):
    old = changed(components, "constants", to=[["a" * 32, [], "float32"]])
    new = changed(components, "constants", to=[["b" * 32, [], "float32"]])
    old["explained"]["shown_constants"], new["explained"]["shown_constants"] = [2.0], [3.0]

    assert texts(old, new) == ["constant 0 2.0 -> 3.0"]
    new["explained"]["shown_constants"] = [None]
    assert texts(old, new) == ["constant 0 has other values, float32 []"]


@pytest.mark.parametrize(
    ("name", "shown"), [("accumulation", "accumulation"), ("replicas", "replicas"), ("iterations", "device iterations")]
)
def test_the_plan_of_a_call_is_named(name, shown, components):
    assert texts(components, changed(components, "plan", name, to=4)) == [f"{shown} 1 -> 4"]


def test_momentum_that_was_turned_on_is_named_with_its_value(components):
    new = changed(components, "optimizer", 0, "momentum", to=True)
    new["explained"]["numbers"] = [{"momentum": 0.9}]

    assert texts(components, new, after=program(CONFIG.replace("momentum = 0.0", "momentum = 0.9"))) == [
        "optimizer momentum 0.0 -> 0.9 at config.py:5"
    ]


def test_another_optimizer_is_named_and_its_settings_are_not(components):
    new = changed(components, "optimizer", to=[{"family": "ADAM", "momentum": False, "parameters": []}])

    assert texts(components, new) == ["optimizer SGD -> ADAM"]


def test_a_parameter_that_is_no_longer_trained_is_named(components):
    new = changed(components, "tensors", "parameters", 0, 4, to=False)

    assert texts(components, new) == ["parameters now frozen (fc.weight)"]


@pytest.mark.parametrize("name", sorted(list_versions()))
def test_versions_are_named(name, components):
    old = changed(components, "versions", name, to="0.0")

    assert texts(old, components) == [f"{name} 0.0 -> {list_versions()[name]}"]


def test_a_processor_is_named_with_what_it_lacks(components):
    old = changed(
        components, "processor", to={"name": "6502", "instructions": ["bcd", *describe_processor()["instructions"]]}
    )

    assert texts(old, components) == [f"processor 6502 -> {describe_processor()['name']}", "the processor lacks bcd"]


def test_the_engine_is_named(components):
    assert texts(components, changed(components, "engine", "name", to="aot")) == ["engine auto -> aot"]


def test_what_else_a_key_holds_is_named(components):
    assert texts(components, changed(components, "extra", to={"limit": 3})) == ["limit none -> 3"]


def test_several_changes_are_all_listed_those_of_known_lines_first(components):
    new = changed(with_dropout(components, 0.2), "threads", to=4)
    new = changed(new, "versions", "torch", to="9.9")
    after = program(CONFIG.replace("dropout = 0.1", "dropout = 0.2"))

    first, second, third = texts(components, new, after=after)

    assert first == "dropout p 0.1 -> 0.2 at config.py:3"
    assert second.startswith("torch ")
    assert third == "threads 1 -> 4"
