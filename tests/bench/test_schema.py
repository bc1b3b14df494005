"""The schema is closed, and what does not follow it is told with its place."""

from __future__ import annotations

import json

import pytest

from porting.bench.schema import check, load_schema

from .conftest import make_record, results_of


def test_every_definition_of_the_schema_is_closed():
    schema = load_schema()

    assert [name for name, kind in schema["definitions"].items() if kind["additionalProperties"] is not False] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"status": "great"}, "$.cells[0].status: 'great' is none of"),
        ({"repeat": "1"}, "$.cells[0].repeat: '1' is not of type integer"),
        ({"more": 1}, "$.cells[0]: unknown key `more`"),
        ({"demanded": True}, "$.cells[0].demanded: True is not of type number or null"),
    ],
)
def test_the_check_names_the_place_of_a_problem(change, problem):
    content = results_of(make_record(**change))

    (found,) = check(content, load_schema())

    assert found.startswith(problem)


def test_the_schema_is_json_schema_for_other_tools():
    assert json.loads(json.dumps(load_schema()))["$schema"] == "http://json-schema.org/draft-07/schema#"
