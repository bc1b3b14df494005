"""A step answers what operators keep and read, and where modules begin and end."""

from __future__ import annotations

from dataclasses import replace

from tests.planning.step_chains import chain


def test_only_what_the_backward_pass_needs_is_kept():
    assert chain(length=4).kept_bytes == 4 * 100


def test_operators_keep_and_read_what_the_one_before_has_made():
    step = chain(length=4)

    assert step.find_values("kept_at", 1, 3) == step.find_values("read_at", 1, 3) == {1, 2}
    assert step.find_values("read_at", 3, 3) == set()


def test_ends_are_the_operators_that_make_a_modules_output():
    assert chain(length=4).ends_of(["layer3", "layer1", "elsewhere"]) == (1, 3)


def test_a_module_begins_where_the_first_of_its_inner_modules_does():
    paths = ["embed", "blocks.0.norm", "blocks.0.head", "blocks.1.norm"]
    step = chain(length=4)
    step = replace(step, operations=tuple(replace(op, module_path=path) for op, path in zip(step.operations, paths)))

    assert step.begins == {
        "embed": 0,
        "blocks": 1,
        "blocks.0": 1,
        "blocks.0.norm": 1,
        "blocks.0.head": 2,
        "blocks.1": 3,
        "blocks.1.norm": 3,
    }
