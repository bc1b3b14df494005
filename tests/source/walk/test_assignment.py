"""Assignments to names, attributes and elements, and guesses of what something unknown returned."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts

START = """
import torch
from torch import nn
net = nn.Linear(3, 2)
criterion = nn.MSELoss()
class Holder:
    pass
holder = Holder()
"""


def kinds_of(facts: Facts) -> Set[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return {one.kind.value for one in call.arguments[0]}


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        ("a = b = net\nshow(b)\n", {"module"}),
        ("a, (b, c) = 1, (2, net)\nshow(c)\n", {"module"}),
        ("a, *b = 1, net, criterion\nshow(b)\n", {"module", "criterion"}),
        ("holder.net = net\nshow(holder.net)\n", {"module"}),
        ("holder.net = net\nholder.net = criterion\nshow(holder.net)\n", {"criterion"}),
        ("setattr(holder, 'net', net)\nshow(holder.net)\n", {"module"}),
        ("d = {}\nd['net'] = net\nshow(d['net'])\n", {"module"}),
        ("d = {}\nd[key] = net\nshow(d['net'])\n", {"module"}),
        ("d = {'net': criterion}\nd['net'] = net\nshow(d['net'])\n", {"module"}),
        ("d = []\nd.append(net)\nshow(d[0])\n", {"module"}),
        ("d = []\nd += [net]\nshow(d)\n", {"module"}),
        ("d = {}\nd.update(net=net)\nshow(d['net'])\n", {"module"}),
        ("net = nn.DataParallel(net)\nshow(net)\n", {"module"}),
        ("net: nn.Module = criterion\nshow(net)\n", {"criterion"}),
        ("with net as n:\n    show(n)\n", {"module"}),
        ("del net\nshow(net)\n", set()),
    ],
)
def test_what_is_assigned_is_found_again(facts_of, program, kinds):
    assert kinds_of(facts_of(START + program)) == kinds


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        ("thing = make()\nthing.zero_grad()\nthing.step()\nshow(thing)\n", {"optimizer"}),
        ("model = build(cfg)\nshow(model)\n", {"module"}),
        ("train_loader, val_loader = get_loaders(cfg)\nshow(val_loader)\n", {"loader"}),
        ("from nets import UNet\nnet = UNet(3)\nshow(net)\n", {"module"}),
        ("from nets import DiceLoss\nf = DiceLoss()\nshow(f)\n", {"criterion"}),
        ("from nets import UNet\nf = UNet(3)\nf.parameters()\nshow(f)\n", {"module"}),
        ("import numpy as np\nmodel = np.load('m')\nshow(model)\n", set()),
        ("import random\nloss = random.random()\nshow(loss)\n", set()),
        ("loss = compute()\nshow(loss)\n", set()),
        ("opt = parser.parse_args()\nshow(opt)\n", set()),
    ],
)
def test_what_nothing_tells_is_guessed(facts_of, program, kinds):
    assert kinds_of(facts_of(START + program)) == kinds
