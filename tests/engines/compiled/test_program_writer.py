"""What a program stores, and which arguments it takes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.step_program import build_programs
from tests.engines.compiled.step_requests import Body, inference, targets, training
from tests.engines.interpreted_programs import written_names


def test_weights_are_stored_after_all_new_values_are_known(settings):
    (program,) = build_programs(*training(settings())).by_role.values()

    assert targets(program)[-4:] == [torch.ops.aten.copy_.default] * 4


def test_arguments_that_nothing_needs_are_left_out():
    (program,) = build_programs(*inference(lambda module, x: x * 2)).by_role.values()

    assert [spec.name for spec in program.arguments] == ["input:0:"]


def test_statistics_are_updated_even_if_nobody_needs_the_normalised_values():
    model = Body(lambda module, x: (module.norm(x), F.mse_loss(x * 2, x))[1])
    model.norm = nn.BatchNorm1d(3)
    graph = capture_step(model, [torch.randn(4, 3)], mode="training")
    (program,) = build_programs(graph, BuildRequest(CallPlan())).by_role.values()

    names = written_names(program)
    assert names == {f"buffer:0:norm.{name}" for name in ("running_mean", "running_var")}
