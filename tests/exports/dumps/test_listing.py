"""The dump as text: a line for each operator says what is true of it."""

from __future__ import annotations

import re

import torch
from torch import nn

from porting.exports import capture
from porting.exports.dumps import dump_graph


def test_the_text_tells_shapes_bytes_operations_modules_and_places():
    batch = torch.ones(8, 4), torch.ones(8, 2)
    linear = capture(nn.Linear(4, 2), nn.MSELoss(), batch, target="a.py:make")

    lines = dump_graph(linear, "text").decode().splitlines()

    line = next(line for line in lines if "aten.linear" in line)
    assert re.match(r"\w+ = aten.linear.default\(input_0, weight, bias\) -> float32\[8, 2\]  64 B  128 FLOP", line)
    assert f"{__file__}:" in line
    assert lines[0] == "# training step of a.py:make, batch 8"
