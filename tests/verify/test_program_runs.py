"""Programs are run each in a process and a folder of its own, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from porting.verify.plain_runs import PLAIN
from porting.verify.program_runs import ProgramPair, ProgramRuns, start_process
from tests.simulator.leaks import is_running

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

    ported, (plain, again) = runs.run_port(2), runs.run_plain(2, PLAIN, PLAIN)

    assert [one.trainings[0].record.rates[1] for one in (ported, plain, again)] == [[1.0], [0.0], [0.0]]
    assert told == ["the port: program.py", "plain PyTorch, 2 times: program.py"]
    assert dict(os.environ) == before


FORKING = """\
import os, signal, sys
child = os.fork()
if child:
    print(child, flush=True)
    os.kill(os.getppid(), signal.SIGUSR1)
signal.pause()
"""


def test_an_interrupted_process_takes_its_forks_along(tmp_path):
    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    with (tmp_path / "log").open("wb") as log, pytest.raises(KeyboardInterrupt):
        start_process([sys.executable, "-c", FORKING], os.environ, log)
    signal.signal(signal.SIGUSR1, before)

    fork = int((tmp_path / "log").read_text())
    # it ends soon after the signal, or never
    while is_running(fork):
        os.sched_yield()
    assert not is_running(fork)
