"""This program measures how the time and the memory of a plan grow with the operators of a step.

`python -m porting.bench.plan_growth` prints the table of docs/planning.md. Each size has a process of its own, so that
its peak of memory is its own.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from typing import Dict, Iterator, List, Sequence

import torch
from torch import nn

from porting.bench.growth import find_slope
from porting.planning import plan

__all__ = ["Blocks", "measure_plan", "write_growth"]

SIZES = (6, 12, 24, 48)
"""Numbers of blocks: 1, 2, 4 and 8 times the operators."""

_MEBI = 1 << 20
_ROWS, _WORDS, _WIDTH = 4, 128, 512
# of these the quickest, which others on the machine have disturbed the least
_REPEATS = 3


class Blocks(nn.Module):
    """Words, blocks of a transformer, and scores of words."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(8192, _WIDTH), nn.Linear(_WIDTH, 8192)
        block = nn.TransformerEncoderLayer
        self.blocks = nn.ModuleList(block(_WIDTH, 8, 4 * _WIDTH, batch_first=True) for _ in range(num_blocks))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores, as a cross entropy takes them."""
        hidden = self.words(words)
        for block in self.blocks:
            hidden = block(hidden)
        scores: torch.Tensor = self.head(hidden)
        return scores.transpose(1, 2)


def measure_plan(num_blocks: int) -> Dict[str, float]:
    """Plan a step of so many blocks on one IPU and on four, and return seconds of processor, operators and MiB."""
    batch = (torch.zeros(_ROWS, _WORDS, dtype=torch.int64),) * 2
    with torch.device("meta"):
        model = Blocks(num_blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found: Dict[str, float] = {"blocks": num_blocks}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, ipus in (("one IPU", 1), ("four IPUs", 4)):
        found[f"seconds, {name}"] = math.inf
        for _repeat in range(_REPEATS):
            start = time.process_time()
            planned = plan(model, nn.CrossEntropyLoss(), batch, optimizer, ipus=ipus)
            found[f"seconds, {name}"] = min(found[f"seconds, {name}"], time.process_time() - start)
    start = time.process_time()
    str(planned), planned.suggested, planned.scaling  # noqa: B018 - computed when they are asked for
    found["seconds, report"] = time.process_time() - start
    found["operators"] = len(planned.step.operations)
    # in KiB, as Linux says it
    found["MiB more"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / _MEBI
    return found


def write_growth(rows: Sequence[Dict[str, float]]) -> Iterator[str]:
    """Write the figures of all sizes as a table with the slope of each figure over the number of operators."""
    operators = [int(row["operators"]) for row in rows]
    yield " | ".join(["| operators", *map(str, operators), "slope |"])
    yield "|" + "---|" * (len(rows) + 2)
    for name in (name for name in rows[0] if name not in ("operators", "blocks")):
        slope = find_slope(operators, [row[name] for row in rows])
        texts = (f"{row[name]:.1f}" for row in rows)
        yield " | ".join([f"| {name}", *texts, "- |" if slope is None else f"{slope:.2f} |"])


def _measure_all() -> List[Dict[str, float]]:
    rows = []
    for size in SIZES:
        command = [sys.executable, "-m", "porting.bench.plan_growth", str(size)]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure_plan(int(sys.argv[1]))))
    else:
        sys.stdout.write("\n".join(write_growth(_measure_all())) + "\n")
