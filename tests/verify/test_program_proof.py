"""A ported program is proved against a plain one: sound pairs pass, and silent errors are found where they begin."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from porting.verify.certificate import Verdict
from porting.verify.plain_runs import PLAIN
from porting.verify.program_proof import ProgramPair, ProgramRuns, start_process
from tests.simulator.leaks import is_running
from tests.verify.program_styles import STYLES
from tests.verify.silent_errors import ERRORS, make_program


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ERRORS)
def test_a_silent_error_is_found_where_it_begins(name, prove_programs):
    error = ERRORS[name]
    plain = make_program(error.sound, is_ported=False)

    certificate = prove_programs(make_program({**error.sound, **error.faulty}, is_ported=True), plain, steps=5)

    assert certificate.verdict is Verdict.FAIL, str(certificate)
    first = certificate.first
    assert (first.kind, first.step) == (error.kind, error.step), str(certificate)
    assert error.name in first.name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ERRORS)
def test_the_sound_twin_of_a_silent_error_passes(name, prove_programs):
    sound = ERRORS[name].sound
    plain, ported = (make_program(sound, is_ported=is_ported) for is_ported in (False, True))

    certificate = prove_programs(ported, plain, steps=4)

    assert certificate.holds, str(certificate)


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_a_sound_program_passes_in_every_style(style, prove_programs):
    certificate = prove_programs(*STYLES[style], steps=4)

    assert certificate.holds, str(certificate)
    assert certificate.num_steps == 4


# -- runs --------------------------------------------------------------------------------------------------------------

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


def test_a_process_is_killed_after_its_seconds(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        status = start_process([sys.executable, "-c", "import signal; signal.pause()"], os.environ, log, seconds=0.1)

    assert status == -signal.SIGKILL
