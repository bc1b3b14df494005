"""A number that changes while a program trains is told, as a port would go on with the first one."""

from __future__ import annotations

import pytest

from tests.convert.conversions import convert_text

PROGRAM = """\
import math
import torch
from torch import nn

beta = 1.0


def compute(output, y):
    return nn.functional.cross_entropy(output, y) * beta


class Net(nn.Linear):
    scale = 1.0
    state = None

    def forward(self, x):
        return super().forward(x) * self.scale


model = Net(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    optimizer.zero_grad()
    output = model(x)
    loss = compute(output, y)
    loss.backward()
    optimizer.step()
    LINE
"""


def list_left(tmp_path, line, style):
    _text, made = convert_text(tmp_path, PROGRAM.replace("LINE", line), style=style)
    return [(one.line, one.reason) for one in made.left]


def say(name):
    return [(29, f"`{name}` changes in training, and a port has it compiled in")]


@pytest.mark.parametrize("style", ["idiomatic", "minimal"])
@pytest.mark.parametrize("line", ["model.scale = 2.0", "model.scale *= 0.9", "model.scale = math.exp(-step)"])
def test_what_forward_reads_is_told_in_either_style(tmp_path, line, style):
    assert list_left(tmp_path, line, style) == say("model.scale")


def test_what_the_loss_reads_is_told_where_the_loss_is_a_part_of_the_port(tmp_path):
    line = "beta = min(1.0, step / 4)"

    assert list_left(tmp_path, line, "idiomatic") == say("beta")
    assert list_left(tmp_path, line, "minimal") == []


@pytest.mark.parametrize("style", ["idiomatic", "minimal"])
@pytest.mark.parametrize(
    "line", ["best = 2.0", "scale = 2.0", "model.state = torch.zeros(4)", "optimizer.scale = None"]
)
def test_what_neither_reads_and_what_is_no_number_is_not(tmp_path, line, style):
    assert list_left(tmp_path, line, style) == []
