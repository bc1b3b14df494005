"""Methods of tensors, modules, ports, optimizers, helpers and containers."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts

START = """
import torch, porting, poptorch
from torch import nn
from torch.utils.data import DataLoader
from accelerate import Accelerator
net, accelerator = nn.Linear(3, 2), Accelerator()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.cuda.amp.GradScaler()
port = porting.to_ipu(net, nn.MSELoss())
loader = DataLoader(d)
x = torch.zeros(3)
"""


def kinds_of(facts: Facts) -> Set[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return {one.kind.value for one in call.arguments[0]}


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("x.cuda()", {"tensor"}),
        ("x.item()", set()),
        ("x.tolist()", set()),
        ("net.forward(x)", {"output"}),
        ("net.train().cuda()", {"module"}),
        ("net.half().state_dict()", {"state"}),
        ("net.named_parameters()", {"parameters"}),
        ("net.encode(x)", {"output"}),
        ("port.inference()", {"port"}),
        ("port.dataloader(loader)", {"port-loader"}),
        ("port.compile(x)", set()),
        ("optimizer.state_dict()", {"state"}),
        ("scaler.scale(net(x))", {"loss"}),
        ("accelerator.prepare(net, optimizer)[1]", {"optimizer"}),
        ("accelerator.prepare(net)", {"module"}),
        ("accelerator.unwrap_model(net)", {"module"}),
        ("torch.distributions.Categorical(net(x)).log_prob(x)", {"output"}),
        ("poptorch.Options().deviceIterations(2).replicationFactor(2)", {"options"}),
        ("[net].pop()", {"module"}),
        ("{'a': net}.setdefault('a')", {"module"}),
        ("list({'a': net}.values())", {"module"}),
    ],
)
def test_what_a_method_returns(facts_of, expression, kinds):
    assert kinds_of(facts_of(START + f"show({expression})\n")) == kinds


def test_a_closure_is_walked_where_the_optimizer_steps(facts_of):
    facts = facts_of(
        START + "for epoch in range(3):\n    def closure():\n        mark()\n    optimizer.step(closure)\n"
    )
    (call,) = [call for call in facts.calls if call.name == "mark"]

    assert [loop.kind.value for loop in call.where.loops] == ["epochs"]


def test_a_function_that_is_applied_gets_the_module(facts_of):
    facts = facts_of(START + "def init(m):\n    show(m)\nnet.apply(init)\n")

    assert kinds_of(facts) == {"module"}


@pytest.mark.parametrize("call", ["accelerator.backward(loss)", "scaler.scale(loss).backward()"])
def test_what_is_differentiated_by_a_helper_is_a_loss(facts_of, call):
    facts = facts_of(START + f"loss = net(x).sum()\n{call}\nshow(loss)\n")

    assert kinds_of(facts) == {"loss"}


def test_a_module_that_was_loaded_whole_is_one(facts_of):
    facts = facts_of(START + "m = torch.load('m.pt')\nm.eval()\nshow(m(x))\n")

    assert kinds_of(facts) == {"output"}
