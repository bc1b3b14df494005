"""Proofs of whole programs, whose processes are forks of one that has loaded what they need."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from porting.verify import program_runs
from porting.verify.program_proof import verify_programs
from porting.verify.program_runs import ProgramPair
from tests.program_server import ProgramServer

STARTER = """\
import json, os, sys
environment = json.loads(open(sys.argv[2]).read())
os.environ.clear()
os.environ.update(environment)
if "bootstrap" in environment["PYTHONPATH"]:
    from porting.aliases import COMPANIONS, VENDOR, install_aliases
    install_aliases(replace=VENDOR, provide=COMPANIONS)
from porting.verify.observed_process import main
main()
"""


@pytest.fixture(scope="session")
def _server():
    server = ProgramServer("tests.verify.observed_forks")
    yield server
    server.close()


@pytest.fixture
def fork_programs(_server, monkeypatch):
    """Let the processes of observed programs be forks."""

    def start(command, environment, log, **_limits):
        with tempfile.TemporaryDirectory() as name, open(os.devnull, encoding="utf-8") as nothing:
            starter, variables = Path(name) / "start.py", Path(name) / "environment"
            starter.write_text(STARTER)
            variables.write_text(json.dumps(dict(environment)))
            streams = [nothing.fileno(), log.fileno(), log.fileno()]
            _server.start([str(starter), command[-1], str(variables)], streams)
            return _server.wait()

    monkeypatch.setattr(program_runs, "start_process", start)


@pytest.fixture(scope="session")
def _known_runs():
    return {}


@pytest.fixture
def prove_programs(fork_programs, _known_runs, tmp_path, monkeypatch):
    """Prove a ported program, given as text, against a plain one; the same text is run once for all tests."""
    monkeypatch.chdir(tmp_path)
    run = program_runs._run_tasks

    def run_once(tasks, environment):
        text = Path(tasks[0].script).read_text("utf-8")
        key = (text, repr([replace(task, script="") for task in tasks]), environment["PYTHONPATH"])
        if key not in _known_runs:
            _known_runs[key] = pickle.dumps(run(tasks, environment))
        return pickle.loads(_known_runs[key])

    monkeypatch.setattr(program_runs, "_run_tasks", run_once)

    def prove(ported, plain, *, steps=4, seed=0, arguments=()):
        Path("ported.py").write_text(ported)
        Path("plain.py").write_text(plain)
        pair = ProgramPair("ported.py", "plain.py", tuple(arguments), tuple(arguments))
        return verify_programs(pair, num_steps=steps, seed=seed, device="sim")

    return prove
