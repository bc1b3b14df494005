"""A step tells its names in the words of the loop, and a step that is left says where and why."""

from __future__ import annotations

import ast

import pytest

from porting.convert.program import read_program
from porting.convert.steps import find_step
from porting.convert.training_step import StepError
from tests.convert.training_programs import HEAD, write_loop

STEP = ("optimizer.zero_grad()", "loss.backward()", "optimizer.step()")


@pytest.fixture
def find(tmp_path):
    def find(text):
        (tmp_path / "train.py").write_text(text)
        return find_step(read_program(str(tmp_path), str(tmp_path / "train.py")))

    return find


def test_a_step_has_the_names_of_its_loop(find):
    step = find(write_loop("scores = model(x)", "total = criterion(scores, y)", *STEP).replace("loss.b", "total.b"))
    assert (step.model, step.outputs, step.labels, step.loss_name) == ("model", ["scores"], ["y"], "total")
    assert step.constants == {"criterion"}
    assert step.scope is step.file.tree


def test_a_nested_call_is_read_as_if_its_output_had_a_name(find):
    step = find(write_loop("loss = criterion(model(x), y)", *STEP))
    assert ast.unparse(step.read_unit(step.unit)) == "loss = criterion(output, y)"
    assert step.read_unit(step.host[0]) is step.host[0]


def test_a_step_that_is_left_has_its_line_and_a_remedy(find):
    with pytest.raises(StepError) as caught:
        find(write_loop("loss = criterion(model(x), y)", STEP[0], "loss.backward(retain_graph=True)", STEP[2]))
    left = caught.value.left
    assert left.line == HEAD.count("\n") + 5
    assert left.reason == str(caught.value)
    assert "--style minimal" in left.help
