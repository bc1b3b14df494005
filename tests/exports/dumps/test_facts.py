"""The facts about a step are counted from its graph."""

from __future__ import annotations

import json

import torch
from torch import nn

from porting.exports import capture
from porting.exports.dumps import dump_graph


def test_the_peak_counts_values_until_their_last_use():
    chain = nn.Sequential(*[nn.Sigmoid() for _ in range(5)])

    step = capture(chain, None, torch.ones(8, 4), mode="inference")

    assert json.loads(dump_graph(step, "json"))["sums"]["forward_peak_bytes"] == 2 * 8 * 4 * 4
