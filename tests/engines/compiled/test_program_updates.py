"""The update of a program is the arithmetic of the optimizer, written out for every parameter."""

from __future__ import annotations

import pytest
import torch

from porting.engines.compiled.program_updates import UpdateWriter
from porting.engines.compiled.programs import ProgramGraph
from porting.engines.compiled.step_program import build_programs
from porting.engines.compiled.step_tracing import make_fake_tensors
from porting.engines.compiled.traced_step import TracedStep
from tests.engines.compiled.step_requests import targets, training


def trace(graph, request):
    step = TracedStep(graph, request)
    step.trace()
    return step


def test_without_a_layout_there_is_nothing_to_update(settings):
    request = training(settings())
    with make_fake_tensors():
        step = trace(*request)
        writer = UpdateWriter((), step.state)
        program = ProgramGraph({})

        writer.write(program, {}, {}, {(-1, "gradient_scale"): None})

        assert writer.num_operators == 0


@pytest.mark.parametrize("kind", ["SGD2", "ADAM", "LAMB"])
def test_every_parameter_adds_as_many_operators_as_another(settings, kind):
    request = training(settings(kind, momentum=0.9))
    with make_fake_tensors():
        writer = trace(*request).update

        assert writer.num_operators > 0
        assert writer.num_operators % 4 == 0  # two weights and two biases


def test_a_step_has_the_hyper_parameters_of_all_groups(settings):
    request = training(settings("ADAM"))
    with make_fake_tensors():
        one = UpdateWriter((), None).num_hyper_parameters
        step = trace(*request)
        twice = UpdateWriter(step.layouts * 2, step.state)

        assert twice.num_hyper_parameters - one == 2 * (step.update.num_hyper_parameters - one)


def test_gradients_are_clipped_by_one_norm_of_all(settings):
    aten = torch.ops.aten
    plain, clipped = (
        build_programs(*training(settings("LAMB", **clip))).by_role["step"] for clip in ({}, {"max_grad_norm": 1.0})
    )

    assert targets(clipped).count(aten.stack.default) == targets(plain).count(aten.stack.default) + 1
