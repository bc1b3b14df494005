"""What `forward` makes or moves goes where the model's tensors are, and all that it names otherwise stays."""

from __future__ import annotations

import pytest

from tests.convert.conversions import convert_text

PROGRAM = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.device = device

    def forward(self, x):
        LINE
        return self.layer(x)


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4).to(device)).sum()
    loss.backward()
    optimizer.step()
"""
OF_MODEL = "next(self.parameters()).device"


def convert_line(tmp_path, line, program=PROGRAM, style="minimal"):
    text, made = convert_text(tmp_path, program.replace("LINE", line), style=style)
    assert not made.left
    return text


@pytest.mark.parametrize("style", ["idiomatic", "minimal"])
@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("x = x.sum(0, keepdim=True) + torch.ones(4, 4, device=device)", "torch.ones(4, 4, device=x.device)"),
        ("x = x + torch.ones(8, 4).to(self.device)", f"torch.ones(8, 4).to({OF_MODEL})"),
        ("x = x.to(device)", f"x = x.to({OF_MODEL})"),
        ("x = x.cuda()", f"x = x.to({OF_MODEL})"),
        ("kind = torch.device('cuda' if x.is_cuda else 'cpu')", f"kind = {OF_MODEL}"),
        ("where = 'cuda' if x.is_cuda else 'cpu'", f"where = {OF_MODEL}"),
        ("x = x + torch.ones(8, 4)", "torch.ones(8, 4, device=x.device)"),
        ("self.state = torch.zeros(1, len(x), 2)", f"torch.zeros(1, len(x), 2, device={OF_MODEL})"),
        ("self.noise = torch.randn(8, 4)", f"torch.randn(8, 4, device={OF_MODEL})"),
    ],
)
def test_a_device_that_is_named_becomes_that_of_a_tensor(tmp_path, line, becomes, style):
    if style == "idiomatic":
        program = PROGRAM.replace("model(torch.randn(8, 4).to(device)).sum()", "model(x).sub(y).square().sum()")
        program = program.replace("range(3):", "range(3):\n    x, y = torch.randn(8, 4), torch.randn(8, 2)")
    else:
        program = PROGRAM

    assert becomes in convert_line(tmp_path, line, program, style)


@pytest.mark.parametrize(
    "line",
    [
        "x = x + torch.ones(8, 4, device=x.device)",
        "x = x + torch.ones(8, 4).to(self.layer.weight.device)",
        "where = x.device; x = x.to(where)",
        "is_gpu = self.device == 'cuda' or device.type == 'cuda'",
        "noise = torch.randn(8, 4); x = x + noise.type_as(x)",
    ],
)
def test_what_asks_a_tensor_or_is_only_compared_stays(tmp_path, line):
    assert f"        {line}\n" in convert_line(tmp_path, line)


def test_what_the_loop_names_stays(tmp_path):
    text = convert_line(tmp_path, "x = x.to(device)")

    assert "torch.randn(8, 4).to(device)" in text
    assert "model = Net().to(device)" in text


def test_a_model_without_weights_goes_where_its_input_is(tmp_path):
    program = PROGRAM.replace("self.layer = nn.Linear(4, 2)", "self.scale = 2.0").replace(
        "self.layer(x)", "torch.cat([x, torch.ones(8, 1).to(device)], 1)"
    )
    program = program.replace("model = Net().to(device)", "model = nn.Sequential(nn.Linear(4, 4), Net())")

    assert "torch.ones(8, 1).to(x.device)" in convert_line(tmp_path, "x = x.relu()", program)
