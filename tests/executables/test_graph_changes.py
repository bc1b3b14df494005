"""Operators, layers and sizes that are others than before are named, and what follows from them is not."""

from __future__ import annotations

import copy

from tests.executables.key_changes import CONFIG, changed, program, texts


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


def test_a_second_layer_of_a_kind_is_added_and_replaces_none(components):
    new = copy.deepcopy(components)
    new["graph"]["operators"].insert(1, ["aten.linear.default", {"input": {"%": 3}}])
    new["explained"]["modules"].insert(1, "more")
    new["explained"]["places"].insert(1, ["model.py", 30])

    assert texts(components, new) == ["layer `more` added: linear at model.py:30"]


def test_an_operator_in_the_body_of_a_loop_is_compared_like_any_other(components):
    body = {"inputs": [], "operators": [["aten.mul.Tensor", {"self": {"%": 0}, "other": 2.0}]], "results": [[{"%": 1}]]}
    loop = ["porting.capture.subgraphs.run_for_loop", {"0": 3, "1": body}]
    components["graph"]["operators"].append(loop)
    new = changed(components, "graph", "operators", 3, 1, "1", "operators", 0, 1, "other", to=3.0)

    assert texts(components, new) == ["mul other 2.0 -> 3.0"]
