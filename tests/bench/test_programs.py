"""Workloads that are made from a user's program."""

from __future__ import annotations

from porting.bench.programs import load_workload

PROGRAM = """
import torch
from torch import nn

def stacked(layers, batch_size=8):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)])
    return model, nn.MSELoss(), (torch.ones(batch_size, 4), torch.ones(batch_size, 4))
"""


def test_a_program_is_loaded_with_the_choices_of_a_case(tmp_path, monkeypatch):
    (tmp_path / "stacked_of_test.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)

    workload = load_workload("stacked_of_test.py:stacked", {"layers": 2, "accumulation": 2})

    assert workload.num_parameters == 2 * (4 * 4 + 4)
    assert len(workload.batch[0]) == 16
