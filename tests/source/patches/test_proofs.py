"""A fix is proven by what stands around it, or it is only shown."""

from __future__ import annotations

import pytest

from porting.diagnostics import Finding, Place
from porting.source.patches.proofs import is_proven

NET = "class Net:\n    def forward(self, x):\n"

CASES = [
    # code, program, what is found, whether it is proven in a port, and in a plain program
    ("C004", "def forward(self, x):\n    return self.fc(x.cpu())\n", "x.cpu()", True, False),
    ("C004", "def forward(self, x):\n    return np.fft.fft(x.cpu())\n", "x.cpu()", False, False),
    ("C010", "def forward(self, x):\n    print(x.shape, x.mean())\n", "print(", True, False),
    ("C010", "def forward(self, x):\n    print(self.update(x))\n", "print(", False, False),
    ("C010", "def forward(self, x):\n    print(y := x + 1)\n", "print(", False, False),
    ("C011", "def forward(self, x):\n    return x.sum(1) + torch.zeros(3)\n", "torch.zeros(3)", True, True),
    ("C011", "def forward(self, x):\n    return x[torch.arange(3).tolist()]\n", "torch.arange(3)", False, False),
    ("C026", f"{NET}        x += 1\n        return x\nnet = Net()\n", "x += 1", True, False),
    ("C026", f"{NET}        y = x.view(-1)\n        x += 1\n        return y\nnet = Net()\n", "x += 1", False, False),
    ("C026", f"{NET}        x += 1\nclass Two:\n    part = Net()\n", "x += 1", False, False),
    ("C026", f"{NET}        x += 1\n", "x += 1", False, False),
    ("C026", "def shift(x):\n    x += 1\n", "x += 1", False, False),
    ("C026", "def shift(x):\n    y = x * 2\n    y += 1\n    return y\n", "y += 1", True, False),
    ("B022", "x == x.contiguous()\n", "x ==", True, True),
    ("B022", "x['a'] == 2\n", "x['a']", False, False),
    ("B022", "self.size == 2\n", "self.size", False, False),
    ("D003", "port = port.to('cpu')\n", "port.to", True, True),
    ("D003", "port.half()\n", "port.half", False, False),
    ("D003", "port.to(dtype=torch.float16)\n", "port.to", False, False),
    ("K006", "torch.save(port, f)\nmodel.load_state_dict(torch.load(f))\n", "torch.save", True, True),
    ("K006", "torch.save(port, f)\nport = torch.load(f)\n", "torch.save", False, False),
    ("K006", "import poptorch\ntorch.save(port, f)\n", "torch.save", False, False),
    ("D003", "with pytest.raises(Error):\n    port.to('cpu')\n", "port.to", False, False),
    ("L010", "loss.backward()\n", "loss.backward()", True, True),
    ("C004", "def forward(self, x:\n", "x", False, False),
]


@pytest.mark.parametrize(("code", "program", "found", "in_port", "in_plain"), CASES)
def test_a_fix_is_proven(code, program, found, in_port, in_plain):
    before = program.partition(found)[0]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    finding = Finding(code, place=Place("train.py", line, column, line, column + len(found)))

    assert is_proven(finding, program.encode(), is_ported=True) is in_port
    assert is_proven(finding, program.encode(), is_ported=False) is in_plain
