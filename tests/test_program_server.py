"""What stands for Python does with words, streams, folder and environment what Python does, and ends as Python ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from tests.program_server import ProgramServer


@pytest.fixture(scope="module")
def python():
    with closing(ProgramServer("json")) as started:
        yield started.python


TELL = "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), os.environ['SAID'], sys.stdin.read()]))"


@pytest.mark.parametrize("words", [["-c", TELL], ["told.py"], ["-m", "told"], ["-u", "told.py"]])
def test_a_program_has_its_words_its_folder_its_environment_and_its_streams(python, words, tmp_path):
    (tmp_path / "told.py").write_text(TELL)
    asked = {"cwd": tmp_path, "input": "in", "capture_output": True, "text": True, "env": {**os.environ, "SAID": "yes"}}

    found, expected = (subprocess.run([each, *words, "more"], **asked) for each in (python, sys.executable))

    assert (found.returncode, found.stdout, found.stderr) == (0, expected.stdout, "")


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "1 / 0", "import os; os.kill(os.getpid(), 15)"])
def test_it_ends_as_the_program_ends(python, program):
    found, expected = (
        subprocess.run([each, "-c", program], stderr=subprocess.PIPE) for each in (python, sys.executable)
    )

    assert found.returncode == expected.returncode
    assert found.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


def test_it_has_what_the_server_has_loaded_and_starts_itself(python):
    program = "import sys; print('json' in sys.modules, sys.executable)"

    said = subprocess.run([python, "-c", program], stdout=subprocess.PIPE, text=True).stdout

    assert said.split() == ["True", python]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_program_too(python, number):
    program = "import time; print('begun', flush=True); time.sleep(600)"
    with subprocess.Popen([python, "-c", program], stdout=subprocess.PIPE) as started:
        assert started.stdout.readline() == b"begun\n"

        started.send_signal(number)

        # the end of what it prints is the program's own end
        assert started.stdout.read() == b""
    assert started.returncode == -number
