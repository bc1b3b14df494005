"""Other programs are asked in a limited time, and what they do instead of answering is told."""

from __future__ import annotations

import sys

from porting.diagnostics import Finding
from porting.doctor.probes import Probe, ask_program


def ask_python(program: str, *, timeout_seconds: float = 20.0):
    return ask_program([sys.executable, "-c", program], timeout_seconds=timeout_seconds)


def test_an_answer_is_all_that_was_written():
    answer = ask_python("import sys; print('out', flush=True); print('error', file=sys.stderr)")

    assert (answer.text, answer.fault) == ("out\nerror", "")


def test_a_status_is_told():
    assert ask_python("raise SystemExit(3)").fault == "ended with status 3"


def test_a_crash_is_told():
    assert ask_python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").fault == "was ended by SIGSEGV"


def test_a_program_that_is_not_there_is_told():
    assert ask_program(["/no/such/program"], timeout_seconds=1).fault.startswith("cannot be started: No such file")


def test_one_that_hangs_is_ended_with_its_children():
    answer = ask_python(
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(3600)'])",
        timeout_seconds=0.5,
    )

    # who waited for its children would be ended by the time limit of tests
    assert answer.fault == "gave no answer in 0.5 s"


def test_bytes_that_are_no_text_are_no_fault():
    assert ask_python("import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok')").text.endswith("ok")


def test_the_state_of_a_probe_is_that_of_its_finding():
    assert Probe("torch", "2.6", "2.13").state == "ok"
    assert Probe("torch", "2.6", "2.13", Finding("X016")).state == "warning"
    assert Probe("torch", "2.6", "none", Finding("X011")).to_dict()["finding"]["code"] == "X011"
