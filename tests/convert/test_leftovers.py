"""What `porting check` finds in a converted program is left, by the lines of the old one."""

from __future__ import annotations

import pytest

from porting.convert.columns import list_findings
from porting.convert.conversion import plan_conversion
from porting.convert.leftovers import list_leftovers

NET = """\
from torch import nn


class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x) * x.sum().item()
"""
TRAIN = """\
import torch
{net}

model = Net(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"train.py": TRAIN.format(net=NET)}, ("train.py", 7)),
        ({"train.py": TRAIN.format(net="from net import Net"), "net.py": NET}, ("net.py", 6)),
    ],
)
def test_a_finding_has_the_line_of_the_old_program(tmp_path, files, place):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    for name, text in files.items():
        (old / name).write_text(text)
        (new / name).symlink_to(old / name)
    made = plan_conversion(str(old), "train.py", style="minimal")
    for name, code in made.changed.items():
        (new / name).unlink()
        (new / name).write_bytes(code)

    left = [
        one
        for one in list_leftovers(made, list_findings(str(new / made.script))[0], str(new))
        if one.reason.startswith("C001")
    ]

    assert [(one.path, one.line) for one in left] == [(str(old / place[0]), place[1])]
    assert left[0].help
