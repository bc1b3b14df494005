"""Which programs a step has, and which steps have none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from porting import simulator as poptorch
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.calls.step_anchors import StepObserver
from porting.engines.compiled import step_program
from porting.engines.compiled.call_layout import CallLayout, describe_layout
from porting.engines.compiled.step_program import build_programs
from tests.engines.compiled.step_requests import FUSED, inference, reason, training
from tests.engines.interpreted_programs import written_names

# -- roles -------------------------------------------------------------------------------------------------------------


def test_training_is_one_program(settings):
    programs = build_programs(*training(settings("ADAM")))

    assert list(programs.by_role) == ["step"]


def test_inference_is_one_program():
    programs = build_programs(*inference(lambda module, x: x * module.weight))

    assert list(programs.by_role) == ["forward"]


def test_a_step_that_is_too_large_to_write_out_is_two_programs(settings, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)

    programs = build_programs(*training(settings("ADAM"), accumulation=4, choice=Choice(micro_batches_at_once=1)))

    assert list(programs.by_role) == ["accumulate", "update"]


def test_a_single_micro_batch_is_never_too_large(settings, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)

    programs = build_programs(*training(settings("ADAM")))

    assert list(programs.by_role) == ["step"]


def test_with_a_fused_update_the_program_ends_in_the_gradients(settings):
    programs = build_programs(*training(settings("ADAM"), choice=FUSED, accumulation=4))

    (program,) = programs.by_role.values()
    assert program.role == programs.layout.role_of_runs == "gradients"
    assert program.num_results == programs.layout.num_results + 4
    assert written_names(program) == set()


def test_a_large_step_with_a_fused_update_adds_up_its_gradients(settings, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)

    programs = build_programs(
        *training(settings("ADAM"), choice=replace(FUSED, micro_batches_at_once=1), accumulation=4)
    )

    assert list(programs.by_role) == ["accumulate"]


@pytest.mark.parametrize(
    ("iterations", "wanted", "expected"), [(6, 4, 3), (6, 6, 6), (7, 4, 1), (6, 100, 6), (1, 8, 1)]
)
def test_a_program_does_a_number_of_steps_that_divides_the_call(settings, iterations, wanted, expected):
    request = training(settings(), iterations=iterations, choice=Choice(steps_per_run=wanted))

    assert build_programs(*request).layout.steps_per_run == expected


def test_steps_that_are_too_many_operators_are_fewer_for_a_program(settings, monkeypatch):
    request = training(settings(), iterations=8, choice=Choice(steps_per_run=8))
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", build_programs(*request).by_role["step"].num_operators // 3)

    assert build_programs(*request).layout.steps_per_run == 2


# -- layouts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("fused_update", [False, True])
def test_a_layout_travels_as_text(settings, accumulation, fused_update, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)
    choice = Choice(micro_batches_at_once=1, fused_update=fused_update)
    layout = build_programs(*training(settings("ADAM"), accumulation=accumulation, choice=choice)).layout

    assert CallLayout.from_dict(json.loads(json.dumps(describe_layout(layout)))) == layout


# -- steps that need the replay engine ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"exchange": lambda gradients: None, "processes": 2}, "between processes"),
        ({"adapts_loss_scaling": True}, "automatic loss scaling"),
        ({"rounds_at_random": True}, "stochastic rounding"),
        ({"checks_floats": True}, "floating-point checks"),
    ],
)
def test_plans_that_need_replay_say_why(settings, plan, expected):
    assert expected in reason(*training(settings(), **plan))


def test_steps_that_are_watched_need_replay(settings):
    graph, _request = training(settings())

    assert "anchors" in reason(graph, BuildRequest(CallPlan(), observer=StepObserver([])))


def test_a_graph_that_prints_needs_replay():
    def show(_module, x):
        return poptorch.ipu_print_tensor(x * 2, "x")

    assert reason(*inference(show)) == "`ipu_print_tensor.default` runs on the host"


def test_a_graph_that_calls_the_host_needs_replay():
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    layer = poptorch.CPU(Twice(), "twice")

    assert reason(*inference(lambda _module, x: layer(x))) == "`call_cpu_op` calls the host"


def test_a_branch_whose_operators_may_fail_needs_replay():
    def choose(_module, x, index):
        (result,) = poptorch.cond(x.sum() > 0, lambda t: t[index], [x], lambda t: t - 1, [x])
        return result

    assert "only if the branch is taken" in reason(*inference(choose, torch.ones(2, 3), torch.tensor([0, 1])))


def test_a_shape_that_depends_on_values_needs_replay(monkeypatch):
    graph, request = inference(lambda module, x: x * module.weight)
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.target, node.args = torch.ops.aten.masked_select.default, (node.args[0], node.args[0])

    assert reason(graph, request).startswith("the step cannot be traced")


def test_a_step_that_computes_nothing_needs_replay():
    assert reason(*inference(lambda module, x: None)) == "the step computes nothing"
