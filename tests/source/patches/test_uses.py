"""What is done with a value, wherever assignments carry it."""

from __future__ import annotations

import pytest

from porting.diagnostics import Place
from porting.source.patches.uses import SourceTree

FORWARD = "def forward(self, x):\n    {}\n"


def find(text: str, wanted: str = "x.cpu()"):
    program = FORWARD.format(text)
    line = next(number for number, content in enumerate(program.split("\n"), 1) if wanted in content)
    column = program.split("\n")[line - 1].index(wanted) + 1
    source = SourceTree(program.encode())
    return source, source.find_call(Place("train.py", line, column, line, column + len(wanted)))


@pytest.mark.parametrize(
    "text",
    [
        "return self.fc(x.cpu())",
        "return x.cpu().tanh().sum(-1)",
        "return torch.cat([x.cpu(), x], 1)",
        "y = x.cpu()\n    y = y * 2\n    return F.relu(y)",
        "return x.cpu() + 1 if self.training else x",
        "return nn.functional.pad(input=x.cpu(), pad=(0, 1))",
        "h, c = self.lstm(x.cpu(), (h, c))\n    return self.fc(h)",
    ],
)
def test_a_tensor_that_stays_a_tensor_stays_with_torch(text):
    source, call = find(text)

    assert call is not None
    assert source.stays_with_torch(call)


@pytest.mark.parametrize(
    "text",
    [
        "return x.cpu().numpy()",
        "return np.sort(x.cpu())",
        "return self.fc(linear_sum_assignment(x.cpu())[0])",
        "y = x.cpu()\n    z = y + 1\n    return scipy.fft.fft(z)",
        "self.kept = x.cpu()\n    return x",
        "return sorted(x.cpu().tolist())",
        "h, c = self.lstm(x.cpu())\n    return h + c.numpy()",
        "h, *others = self.lstm(x.cpu())\n    return h",
        "for row in x.cpu():\n        print(row)",
        "return torch.stack(list(x.cpu()))",
    ],
)
def test_what_numpy_or_somebody_unknown_gets_does_not(text):
    source, call = find(text)

    assert call is not None
    assert not source.stays_with_torch(call)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = x\n    x += 1", True),
        ("y = x[0]\n    x += 1", True),
        ("y = x.flatten(1).t()\n    x += 1", True),
        ("x = y.view(-1)\n    x += 1", True),
        ("x = self.kept\n    x += 1", True),
        ("y = x + 1\n    x += 1", False),
        ("y = x.relu()\n    x += 1", False),
        ("x += 1\n    y = x", False),
    ],
)
def test_a_name_is_aliased_by_what_it_was_assigned_to_before(text, expected):
    program = FORWARD.format(text)
    line = next(number for number, content in enumerate(program.split("\n"), 1) if "x += 1" in content)

    assert SourceTree(program.encode()).is_aliased(Place("train.py", line, 5), "x") is expected
