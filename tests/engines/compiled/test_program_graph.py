"""A program under construction keeps what somebody needs, and knows what it writes to."""

from __future__ import annotations

import torch

from porting.engines.compiled.program_graph import ProgramGraph

aten = torch.ops.aten


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

    assert [made.arguments[index].name for index in made.written] == ["written"]


def test_a_graph_is_written_out_as_often_as_it_runs():
    body = torch.fx.Graph()
    body.output((body.call_function(aten.exp.default, (body.placeholder("x"),)),))
    program = graph_of("x")
    (once,) = program.inline(body, [program.arguments["x"]])
    (twice,) = program.inline(body, [once])

    made = program.finish("step", [twice], has_halves=False)

    torch.testing.assert_close(made.module(torch.zeros(2, 3))[0], torch.full((2, 3), torch.e))
    assert made.num_operators == 2
