"""Convert the text of a program, for tests."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Dict, Tuple

from porting.convert.conversion import Conversion, plan_conversion

__all__ = ["LOOP", "convert_files", "convert_text"]

LOOP = """\
import torch
from torch import nn

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)  # the loss
    loss.backward()
    optimizer.step()
"""
"""The shortest training program there is."""


def convert_files(
    folder: Path, files: Dict[str, str], *, style: str = "minimal", instances: bool = False
) -> Conversion:
    """Write files, of which the first is the script, and plan their conversion."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(textwrap.dedent(text).encode())
    return plan_conversion(str(folder), next(iter(files)), style=style, instances=instances)


def convert_text(folder: Path, text: str, *, style: str = "minimal", instances: bool = False) -> Tuple[str, Conversion]:
    """Convert one script; return its new text, too."""
    made = convert_files(folder, {"train.py": text}, style=style, instances=instances)
    return made.changed.get("train.py", b"").decode(), made
