"""`Options.useAutocast`: every operator works in bfloat16, trains, and gives what single precision gives, rounded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.capture import capture_step
from porting.engines.replay.graph_function import GraphFunction

from .test_operators import DIFFERENTIABLE, IN_HALF, Model, others_of, plain

CASES = {name: case for name, case in DIFFERENTIABLE.items() if name in IN_HALF}


class Lowered(Model):
    """The call of a case on arguments in bfloat16, as after a matrix product."""

    def forward(self, *others: torch.Tensor):
        return self.call(*(x.bfloat16() if x.is_floating_point() else x for x in (self.weight, *others)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", CASES)
def test_operators_give_the_results_of_single_precision_rounded_and_a_gradient(name):
    case = CASES[name]
    model = Lowered(case)
    graph = capture_step(model, others_of(case), mode="inference", autocast=torch.bfloat16)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    inputs = [tensor.to(info.dtype) for tensor, info in zip(others_of(case), graph.inputs)]

    results = GraphFunction(graph.graph).call(
        *(state[info.name] for info in (*graph.parameters, *graph.buffers)), *inputs, *graph.constant_values
    )
    sum(result.float().sum() for result in results if result.requires_grad).backward()

    for result, expected in zip(results, plain(case)):
        assert result.shape == expected.shape
        if expected.dtype == torch.float32:
            tolerance = 16 * torch.finfo(torch.bfloat16).eps * max(1.0, expected.abs().max().item())
            assert (result.float() - expected).abs().max() <= tolerance
    assert model.weight.grad.isfinite().all()


def test_loops_and_branches_keep_the_types_that_go_in():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            (looped,) = simulator.for_loop(2, self.layer, [x])
            (chosen,) = simulator.cond(x.sum() > 0, self.layer, [looped], torch.clone, [looped.float()])
            return chosen.float()

    model, x = Loop(), torch.rand(2, 4)
    with torch.no_grad():
        expected = model.layer(model.layer(model.layer(x)))

    result = simulator.inferenceModel(model, simulator.Options().useAutocast())(x)

    torch.testing.assert_close(result, expected, rtol=0.02, atol=0.02)


def test_plain_programs_compute_bfloat16_in_single_precision():
    result = simulator.inferenceModel(nn.Linear(4, 3).bfloat16())(torch.ones(2, 4, dtype=torch.bfloat16))

    assert result.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, "bfloat16"])
def test_only_bfloat16_can_be_asked_for(dtype):
    with pytest.raises(AssertionError, match="Expected torch.bfloat16"):
        simulator.Options().useAutocast(dtype)
