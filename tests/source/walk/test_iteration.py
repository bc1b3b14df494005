"""What comes out of objects that are gone through, indexed and unpacked."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts, Kind

START = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from datasets import load_dataset
net = nn.Linear(3, 2)
dataset = TensorDataset(x)
loader = DataLoader(dataset)
out = net(torch.zeros(3))
"""


def kinds_of(facts: Facts) -> Set[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return {one.kind.value for one in call.arguments[0]}


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        ("for b in loader:\n    show(b['x'])\n", {"batch"}),
        ("for (a, b), c in loader:\n    show(b)\n", {"batch"}),
        ("for a, *rest in loader:\n    show(rest)\n", {"batch"}),
        ("a, b = next(iter(loader))\nshow(b)\n", {"batch"}),
        ("show(dataset[0])\n", {"batch"}),
        ("show(load_dataset('x')['train'])\n", {"dataset"}),
        ("a, b = out\nshow(a)\n", {"output"}),
        ("a, loss = out\nshow(loss)\n", {"loss"}),
        ("for o in out:\n    show(o)\n", {"output"}),
        ("for n, p in net.named_parameters():\n    show(p)\n", {"parameters"}),
        ("for m in net.modules():\n    show(m)\n", {"module"}),
        ("for m in nn.ModuleList([net]):\n    show(m)\n", {"module"}),
        ("for i, m in enumerate(nn.ModuleList([net])):\n    show(m)\n", {"module"}),
        ("for k, v in {'a': net}.items():\n    show(v)\n", {"module"}),
        ("a, b, c = [net, out, 3]\nshow(b)\n", {"output"}),
        ("show([net, out][1:])\n", {"module", "output"}),
        ("batches = list(loader)\nshow(batches[0])\n", {"batch"}),
    ],
)
def test_what_comes_out(facts_of, program, kinds):
    assert kinds_of(facts_of(START + program)) == kinds


def test_a_batch_knows_its_loader(facts_of):
    facts = facts_of(START + "for a, b in loader:\n    show(b)\n")
    (call,) = [call for call in facts.calls if call.name == "show"]
    ((batch,),) = [one.parts for one in call.arguments[0]]

    assert [part.kind for part in batch.parts] == [Kind.LOADER]
