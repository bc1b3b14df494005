"""Programs run without a compiler, and say what they write to."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.step_program import build_programs
from tests.engines.compiled.step_requests import inference, targets, training
from tests.engines.interpreted_programs import interpret_programs


def test_a_program_is_flat(settings):
    (program,) = build_programs(*training(settings("LAMB", max_grad_norm=1.0))).by_role.values()

    others = [target for target in targets(program) if not isinstance(target, torch._ops.OpOverload)]
    assert others == []
    assert all(target.namespace == "aten" for target in targets(program))


def test_a_program_says_what_it_writes_to(settings):
    (program,) = build_programs(*training(settings("SGD2", momentum=0.9))).by_role.values()

    names = {program.arguments[index].name for index in program.written}
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
