"""What changed is named in plain words, with the line, the argument or the variable that changed it."""

from __future__ import annotations

import copy
import json

import pytest

from porting.executables.explanations import explain
from porting.executables.machine import describe_processor, list_versions

CONFIG = "batch = 16\nhidden = 8\ndropout = 0.1\nlr = 0.1\nmomentum = 0.0\n"
MODEL = "\n" * 19 + "x = self.fc(x)\nx = self.drop(x)\nreturn x.sum()\n"


@pytest.fixture
def components(make_key):
    return json.loads(json.dumps(make_key().components))


def program(config=CONFIG, *, arguments=("train.py",), environment=None):
    return {
        "folder": "/work",
        "program": "/work/train.py",
        "arguments": list(arguments),
        "environment": environment or {},
        "files": {"/work/config.py": config, "/work/model.py": MODEL},
    }


def texts(old, new, *, before=None, after=None):
    changes = explain(
        {"components": old, "sources": before or program()}, {"components": new, "sources": after or program()}
    )
    return [change.text for change in changes]


def changed(components, *path, to):
    values = copy.deepcopy(components)
    inner = values
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return values


def with_dropout(components, p):
    return changed(components, "graph", "operators", 1, 1, "p", to=p)


# -- where it was set --------------------------------------------------------------------------------------------------


def test_the_line_with_the_new_value_is_named(components):
    after = program(CONFIG.replace("dropout = 0.1", "dropout = 0.2"))

    assert texts(components, with_dropout(components, 0.2), after=after) == ["dropout p 0.1 -> 0.2 at config.py:3"]


def test_of_two_lines_with_the_new_value_the_one_that_had_the_old_value_wins(components):
    after = program(CONFIG.replace("dropout = 0.1", "dropout = 0.2").replace("batch = 16", "batch = 0.2"))

    assert texts(components, with_dropout(components, 0.2), after=after) == ["dropout p 0.1 -> 0.2 at config.py:3"]


def test_a_line_that_calls_the_thing_by_its_name_wins_over_another_with_the_same_numbers(components):
    config = CONFIG.replace("lr = 0.1", "lr = 0.2").replace("dropout = 0.1", "dropout = 0.2")

    assert texts(components, with_dropout(components, 0.2), after=program(config)) == [
        "dropout p 0.1 -> 0.2 at config.py:3"
    ]


def test_numbers_are_found_however_they_are_written(components):
    after = program(CONFIG.replace("dropout = 0.1", "dropout = 2e-1"))

    assert texts(components, with_dropout(components, 0.2), after=after) == ["dropout p 0.1 -> 0.2 at config.py:3"]


def test_a_comment_is_no_setting(components):
    after = program(CONFIG + "# 0.2 would be better\n", arguments=("train.py", "--p", "0.2"))

    assert texts(components, with_dropout(components, 0.2), after=after) == ["dropout p 0.1 -> 0.2 by `--p 0.2`"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [(["--dropout", "0.2"], "--dropout 0.2"), (["--dropout=0.2"], "--dropout=0.2"), (["0.2"], "0.2")],
)
def test_a_changed_argument_of_the_command_line_is_named(words, shown, components):
    after = program(arguments=["train.py", *words])

    assert texts(components, with_dropout(components, 0.2), after=after) == [f"dropout p 0.1 -> 0.2 by `{shown}`"]


def test_the_only_line_that_changed_is_named_though_the_value_does_not_stand_there(components):
    after = program(CONFIG.replace("dropout = 0.1", "dropout = 1 / 5"))

    assert texts(components, with_dropout(components, 0.2), after=after) == ["dropout p 0.1 -> 0.2 at config.py:3"]


def test_without_any_change_of_the_program_the_operator_s_line_is_named(components):
    assert texts(components, with_dropout(components, 0.2)) == ["dropout p 0.1 -> 0.2 at model.py:21"]


def test_without_sources_the_change_is_named_all_the_same(components):
    changes = explain(
        {"components": components, "sources": {}}, {"components": with_dropout(components, 0.2), "sources": {}}
    )

    assert [change.text for change in changes] == ["dropout p 0.1 -> 0.2 at model.py:21"]


def test_a_variable_of_the_environment_explains_what_is_called_like_it(components):
    after = program(environment={"OMP_NUM_THREADS": "2"})

    assert texts(components, changed(components, "threads", to=2), after=after) == [
        "threads 1 -> 2 by OMP_NUM_THREADS=2 in the environment"
    ]


# -- what changed ------------------------------------------------------------------------------------------------------


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


def test_a_layer_of_another_size_is_one_change(components):
    new = copy.deepcopy(components)
    new["tensors"]["parameters"][0][1], new["tensors"]["parameters"][1][1] = [9, 4], [9]

    assert texts(components, new, after=program(CONFIG.replace("hidden = 8", "hidden = 9"))) == [
        "layer size 8 -> 9 at config.py:2 (fc.weight and 1 more)"
    ]


def test_an_operator_in_place_of_another_is_named(components):
    new = changed(components, "graph", "operators", 1, to=["aten.gelu.default", {"self": {"%": 3}}])

    assert texts(components, new) == ["operator dropout -> gelu at model.py:21"]


def test_a_layer_that_was_added_is_named(components):
    new = copy.deepcopy(components)
    new["graph"]["operators"].insert(2, ["aten.relu.default", {"self": {"%": 4}}])
    new["explained"]["modules"].insert(2, "act")
    new["explained"]["places"].insert(2, ["model.py", 30])

    assert texts(components, new) == ["layer `act` added: relu at model.py:30"]
    assert texts(new, components) == ["layer `act` removed: relu"]


def test_other_inputs_of_an_operator_are_a_change(components):
    new = changed(components, "graph", "operators", 2, 1, "self", to={"%": 3})

    assert texts(components, new) == ["sum takes other values at model.py:22"]


def test_the_same_change_of_several_operators_is_one(components):
    components["graph"]["operators"].insert(1, copy.deepcopy(components["graph"]["operators"][1]))
    new = copy.deepcopy(components)
    for index in (1, 2):
        new["graph"]["operators"][index][1]["p"] = 0.5

    assert [text for text in texts(components, new) if "(2 operators)" in text] != []
    assert len(texts(components, new)) == 1


def test_an_argument_that_had_its_default_value_shows_it(components):
    components["explained"]["defaults"] = {"aten.sum.default": {"dtype": None}}
    new = changed(components, "graph", "operators", 2, 1, "dtype", to={"dtype": "float16"})

    assert texts(components, new) == ["sum dtype none -> float16 at model.py:22"]


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
