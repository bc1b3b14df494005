"""Run training programs before and after a conversion, for tests."""

from __future__ import annotations

import os
import runpy
import sys

import torch

from tests.convert.conversions import convert_text

__all__ = ["HEAD", "LOADED", "convert_idiomatic", "convert_instances", "read_reason", "train_all_ways", "write_loop"]

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOADED = """\
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

points = torch.arange(64.0).reshape(16, 4) / 64
data = TensorDataset(points, torch.arange(16) % 3)
loader = DataLoader(data, batch_size=4, shuffle=True)
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
for epoch in range(2):
    for x, y in loader:
        output = model(x)
        loss = criterion(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += x[:, 0].mul(16).int().tolist()
    torch.save(model.state_dict(), "model.pt")
with open("seen.json", "w") as file:
    json.dump(seen, file)
"""
"""A program whose batches come from a loader, and which writes its weights and what it has seen."""


def write_loop(*lines, head=HEAD):
    """Write a program of four steps, whose batch is `x` and `y`."""
    body = ["x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))", *lines]
    return head + "for step in range(4):\n" + "".join(f"    {line}\n" for line in body)


def convert_idiomatic(folder, text):
    """Convert a program that leaves nothing, and return its new text."""
    text, made = convert_text(folder, text, style="idiomatic")
    assert not made.left
    return text


def convert_instances(folder, text, style="idiomatic"):
    """Convert a program for several instances; return its new text, and the conversion."""
    return convert_text(folder, text, style=style, instances=True)


def read_reason(folder, text):
    """Return why a program is left as it is; nothing of its training changes."""
    new, made = convert_text(folder, text, style="idiomatic")
    assert "to_ipu" not in new
    assert len(made.left) == 1
    return made.left[0].reason


def train_all_ways(folder, text, monkeypatch):
    """Run a program as it is, converted, and on the simulator; return the weights of each, and the last text."""
    converted = convert_idiomatic(folder, text)
    (folder / "converted.py").write_text(converted)
    weights = []
    # what a program sets is taken away at the end of the test
    monkeypatch.setenv("PORT_DEVICE", "")
    for name, words in (("train.py", ()), ("converted.py", ()), ("converted.py", ("--device", "sim"))):
        monkeypatch.setattr(sys, "argv", [name, *words])
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        os.environ.pop("PORT_DEVICE", None)
        model = runpy.run_path(str(folder / name), run_name="__main__")["model"]
        weights.append([value.clone() for value in model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(weights[0], weights[1]))
    for one, other in zip(weights[0], weights[2]):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    return converted
