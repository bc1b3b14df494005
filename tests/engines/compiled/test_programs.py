"""Programs run without a compiler, and say what they write to."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.programs import ProgramGraph
from porting.engines.compiled.step_program import build_programs
from tests.engines.compiled.step_requests import inference, targets, training
from tests.engines.interpreted_programs import interpret_programs, written_names

aten = torch.ops.aten


def test_a_program_is_flat(settings):
    (program,) = build_programs(*training(settings("LAMB", max_grad_norm=1.0))).by_role.values()

    others = [target for target in targets(program) if not isinstance(target, torch._ops.OpOverload)]
    assert others == []
    assert all(target.namespace == "aten" for target in targets(program))


def test_a_program_says_what_it_writes_to(settings):
    (program,) = build_programs(*training(settings("SGD2", momentum=0.9))).by_role.values()

    names = written_names(program)
    parameters = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert names == {f"parameter::{name}" for name in parameters} | {f"slot:Accl1:{name}" for name in parameters}


def test_a_program_runs_without_a_compiler():
    programs = build_programs(*inference(lambda module, x: x * module.weight))
    arguments = {"parameter::weight": torch.tensor([1.0, 2.0, 3.0]), "input:0:": torch.ones(2, 3)}

    (result,) = interpret_programs(programs)["forward"](
        [arguments[spec.name] for spec in programs.by_role["forward"].arguments]
    )

    assert result.tolist() == [[1.0, 2.0, 3.0]] * 2


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, False), (torch.float16, True)])
def test_a_program_says_whether_it_rounds_to_halves(dtype, expected):
    graph = capture_step(nn.Linear(3, 2).to(dtype), [torch.ones(2, 3, dtype=dtype)], mode="inference")

    (program,) = build_programs(graph, BuildRequest(CallPlan())).by_role.values()

    assert program.has_halves is expected


# -- a program under construction


def graph_of(*names):
    return ProgramGraph({name: torch.zeros(2, 3) for name in names})


def test_an_argument_that_nothing_needs_is_left_out():
    program = graph_of("used", "unused")
    result = program.call(aten.exp.default, program.arguments["used"])

    made = program.finish("step", [result], has_halves=False)

    assert [spec.name for spec in made.arguments] == ["used"]
    assert made.num_results == 1


def test_a_write_through_a_view_is_a_write_to_the_argument():
    program = graph_of("read", "written")
    row = program.call(aten.select.int, program.arguments["written"], 0, 1)
    program.call(aten.copy_.default, row, program.call(aten.select.int, program.arguments["read"], 0, 0))

    made = program.finish("step", [], has_halves=False)

    assert written_names(made) == {"written"}


def test_a_graph_is_written_out_as_often_as_it_runs():
    body = torch.fx.Graph()
    body.output((body.call_function(aten.exp.default, (body.placeholder("x"),)),))
    program = graph_of("x")
    (once,) = program.inline(body, [program.arguments["x"]])
    (twice,) = program.inline(body, [once])

    made = program.finish("step", [twice], has_halves=False)

    torch.testing.assert_close(made.module(torch.zeros(2, 3))[0], torch.full((2, 3), torch.e))
    assert made.num_operators == 2
