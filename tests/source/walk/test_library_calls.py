"""Calls of libraries and of Python's own functions."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts

START = """
import torch, torchvision, copy, itertools, functools
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, random_split
from torchvision import models, datasets
net = nn.Linear(3, 2)
x = torch.zeros(3)
loader = DataLoader(d)
"""


def kinds_of(facts: Facts) -> Set[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return {one.kind.value for one in call.arguments[0]}


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("getattr(models, args.arch)(pretrained=True)", {"module"}),
        ("models.resnet18()", {"module"}),
        ("getattr(torch.optim, name)(net.parameters())", {"optimizer"}),
        ("getattr(datasets, name)('.')", {"dataset"}),
        ("random_split(datasets.MNIST('.'), [1, 2])[0]", {"dataset"}),
        ("F.relu(net(x))", {"output"}),
        ("torch.stack([net(x), x])", {"output"}),
        ("torch.manual_seed(3)", set()),
        ("torch.save(net, 'x')", set()),
        ("copy.deepcopy(net)", {"module"}),
        ("next(itertools.cycle(loader))", {"batch"}),
        ("list(zip([net], [x]))[0][1]", {"tensor"}),
        ("functools.partial(F.mse_loss, x)(x)", {"loss"}),
        ("nn.Sequential(*[net, net])", {"module"}),
        ("nn.Sequential(dict(a=net))", {"module"}),
        ("nn.utils.weight_norm(net)", {"module"}),
        ("torch.quantization.prepare_qat(net)", {"module"}),
        ("nn.SyncBatchNorm.convert_sync_batchnorm(net)", {"module"}),
        ("torch.nn.init.zeros_(x)", {"tensor"}),
        ("max(net(x), 3)", set()),
        ("torch.cuda.Stream()", {"other"}),
        ("str(net)", set()),
    ],
)
def test_what_a_call_returns(facts_of, expression, kinds):
    assert kinds_of(facts_of(START + f"show({expression})\n")) == kinds


def test_objects_of_a_call_are_its_parts(facts_of):
    facts = facts_of(START + "show(DataLoader(datasets.MNIST('.'), sampler=torch.utils.data.RandomSampler(d)))\n")
    (call,) = [call for call in facts.calls if call.name == "show"]

    assert {part.kind.value for part in call.arguments[0][0].parts} == {"dataset", "sampler"}


def test_a_program_that_is_spawned_gets_its_arguments(facts_of):
    facts = facts_of(
        START + "def work(rank, model, n):\n    show(model)\ntorch.multiprocessing.spawn(work, (net, 3), nprocs=2)\n"
    )

    assert kinds_of(facts) == {"module"}
