"""A change is told in plain words, with the line, the argument or the variable that made it."""

from __future__ import annotations

import json

import pytest

from porting.diagnostics import Place
from porting.executables.changes import Change, format_value, split_names
from porting.executables.explanations import explain
from tests.executables.key_changes import CONFIG, changed, program, texts, with_dropout


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("plan", "replicas", "1", "2"), "replicas 1 -> 2"),
        (Change("tensors", "a new input"), "a new input"),
        (Change("operator", "dropout p", "0.1", "0.2", where="at a.py:1"), "dropout p 0.1 -> 0.2 at a.py:1"),
        (Change("tensors", "type", "a", "b", detail="2 parameters"), "type a -> b (2 parameters)"),
    ],
)
def test_a_change_says_what_was_and_what_is(change, text):
    assert change.text == text


def test_only_a_line_of_a_file_is_a_place():
    assert Change("operator", "dropout p", file="a.py", line=3).place == Place("a.py", 3)
    assert Change("operator", "dropout p", file="a.py").place is None


def test_a_change_as_plain_values_survives_a_file():
    change = Change("operator", "dropout p", "0.1", "0.2", words=("p",), operator_place=("a.py", 3))

    plain = change.to_dict()

    assert json.loads(json.dumps(plain)) == plain
    assert plain["text"] == "dropout p 0.1 -> 0.2"


def test_long_values_are_cut_short():
    shown = format_value(list(range(100)))

    assert len(shown) == 60
    assert shown.endswith("...")


def test_numbers_and_the_endings_of_parameters_are_no_words():
    assert split_names("blocks.0.fc.weight", "blocks.1.norm.bias") == ("blocks", "fc", "norm")


# -- where changes were made -------------------------------------------------------------------------------------------


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
