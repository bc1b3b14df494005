"""A program runs in a process of its own, with the simulator under the vendor's name if it is ported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from porting.verify.program_runs import ProgramPair, ProgramRuns

PROGRAM = """\
import importlib.util, os, torch
model = torch.nn.Linear(2, 1)
print(os.getpid())
has_poptorch = importlib.util.find_spec("poptorch") is not None
optimizer = torch.optim.SGD(model.parameters(), lr=float(has_poptorch))
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""


@pytest.mark.slow
def test_each_program_has_a_process_and_the_ported_one_has_the_simulator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    told = []
    runs = ProgramRuns(ProgramPair("program.py", "program.py"), 0, "sim", told.append)
    before = dict(os.environ)

    ported, (plain, again) = runs.run_port(2), runs.run_plain(2, {}, {})

    assert [one.trainings[0].record.rates[1] for one in (ported, plain, again)] == [[1.0], [0.0], [0.0]]
    assert told == ["the port: program.py", "plain PyTorch, 2 times: program.py"]
    assert dict(os.environ) == before
