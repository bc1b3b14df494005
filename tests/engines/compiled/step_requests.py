"""Steps to make programs of: graphs of small models, and requests for them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.compiled.step_program import build_programs
from porting.engines.contract.failures import NotCompilable

DEFAULT = Choice()


FUSED = Choice(fused_update=True)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


class Body(nn.Module):
    """`forward` is `function(module, *inputs)`; the parameter has shape (3,)."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def training(settings, model=None, *, choice=DEFAULT, **plan):
    """Return the graph of a model that is trained, and a request for it."""
    model = mlp() if model is None else model
    graph = capture_step(model, [torch.ones(4, 3), torch.ones(4, 2)], loss=F.mse_loss, mode="training")
    names = tuple(info.name for info in graph.parameters)
    return graph, BuildRequest(CallPlan(**plan), (settings,), (names,), choice)


def inference(function, *inputs):
    """Return the graph of a function of a weight and inputs."""
    return capture_step(Body(function), inputs or [torch.ones(2, 3)], mode="inference"), BuildRequest(CallPlan())


def targets(program):
    return [node.target for node in program.module.graph.nodes if node.op == "call_function"]


def reason(graph, request):
    with pytest.raises(NotCompilable) as caught:
        build_programs(graph, request)
    return caught.value.reason
