"""A process with one job: it does it, says what went wrong, and never outlives the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from porting.support.bound_process import BoundProcess, describe_exit, find_free_memory, measure_group_memory

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are those of POSIX")


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Give a function that starts a process with the given body, and ends it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    processes = []

    def start_process(body, **arguments):
        (tmp_path / "bound_job.py").write_text(f"import os, time\ndef do(arguments, folder):\n    {body}\n")
        process = BoundProcess("bound_job:do", {"number": 7}, parent=str(tmp_path), **arguments)
        processes.append(process)
        process.start()
        return process

    yield start_process
    for process in processes:
        process.end()


def test_it_does_its_job_in_its_folder(start):
    process = start("(folder / 'made').write_text(str(arguments['number']))")

    assert process.wait(240)
    assert process.has_ended()
    assert process.read_error() == ""
    assert (process.folder / "made").read_text() == "7"


def test_what_its_function_returns_is_read(start):
    process = start("return {'made': [arguments['number']]}")

    assert process.wait(240)
    assert process.read_returned() == {"made": [7]}


def test_it_works_where_it_is_told_and_keeps_what_is_passed(start, tmp_path):
    reading, writing = os.pipe()
    process = start(f"os.write({writing}, os.getcwd().encode())", working_folder=str(tmp_path), passed=[writing])
    os.close(writing)

    assert process.wait(240)
    assert os.read(reading, 4096).decode() == str(tmp_path)
    os.close(reading)


def test_a_process_that_was_ended_is_not_killed_again(start, monkeypatch):
    process = start("pass")
    process.end()
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("the number may be another's"))

    process.end()


def test_its_end_takes_the_folder_away(start):
    process = start("time.sleep(600)")

    assert not process.wait(0.01)
    process.end()

    assert process.has_ended()
    assert not process.folder.exists()


def test_an_exception_is_told_and_logged(start):
    process = start("raise ValueError('odd')")

    assert process.wait(240)
    assert process.read_error() == "ValueError: odd"
    assert "Traceback" in process.read_end_of_log()


def test_a_process_that_dies_tells_nothing(start):
    process = start("os.abort()")

    assert process.wait(240)
    assert process.read_error() is None


def test_variables_and_a_low_priority_are_its_own(start):
    body = "(folder / 'made').write_text(f'{os.nice(0)} {os.environ[\"COLOUR\"]}')"

    process = start(body, environment={**os.environ, "COLOUR": "blue"}, is_idle=True)

    assert process.wait(240)
    assert (process.folder / "made").read_text() == "19 blue"


def test_a_fork_that_ends_leaves_it_alone(start):
    process = start("time.sleep(600)")

    child = os.fork()
    if child == 0:
        process.end()
        os._exit(0)
    os.waitpid(child, 0)

    assert process.folder.exists()
    assert not process.has_ended()


needs_pause = pytest.mark.skipif(sys.platform != "linux", reason="only Linux pauses a process and what it has started")


@needs_pause
def test_while_it_is_paused_neither_it_nor_what_it_has_started_goes_on(start):
    count = "import pathlib, time\nfor n in range(10**9):\n    pathlib.Path('{}').write_text(str(n)); time.sleep(0.001)"
    process = start(
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', arguments_of_child], start_new_session=True); "
        "exec(own)".replace("arguments_of_child", repr(count.format("child"))).replace("own", repr(count.format("own")))
    )

    def read_counts():
        return [(process.folder / name).read_text() for name in ("own", "child")]

    wait_until(lambda: all((process.folder / name).exists() for name in ("own", "child")))
    process.pause()
    time.sleep(0.1)
    before = read_counts()
    time.sleep(0.3)

    assert read_counts() == before
    process.resume()
    wait_until(lambda: all(new != old for new, old in zip(read_counts(), before)))


@needs_pause
def test_one_that_is_paused_ends_as_any_other(start):
    process = start("time.sleep(600)")
    wait_until((process.folder / "ready").exists)

    process.pause()
    process.end()

    assert process.has_ended()
    assert not process.folder.exists()


@pytest.mark.parametrize("is_paused", [False, pytest.param(True, marks=needs_pause)])
def test_it_dies_with_the_process_that_started_it(tmp_path, is_paused):
    # what it starts has a group of its own, as a bound process in a bound process has
    (tmp_path / "bound_job.py").write_text(
        "import pathlib, time\nfrom porting.support.bound_process import BoundProcess\n"
        "def do(arguments, folder):\n"
        "    inner = BoundProcess('bound_job:sleep', {}, parent=str(folder.parent))\n    inner.start()\n"
        "    (folder / 'inner').write_text(str(inner._process.pid))\n    time.sleep(600)\n"
        "def sleep(arguments, folder):\n    time.sleep(600)\n"
    )
    program = (
        "import sys, time; from porting.support.bound_process import BoundProcess\n"
        f"process = BoundProcess('bound_job:do', {{}}, parent={str(tmp_path)!r})\n"
        "process.start()\nwhile not (process.folder / 'inner').exists(): time.sleep(0.01)\n"
        f"if {is_paused}: process.pause()\n"
        "print(process._process.pid, (process.folder / 'inner').read_text(), flush=True)\ntime.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        started = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(map(is_alive, started)) and not list(tmp_path.glob(".porting-*")))


def wait_until(holds, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_there_is_some_free_memory():
    assert find_free_memory() > 1 << 20


def test_the_memory_of_a_group_is_that_of_its_processes():
    assert measure_group_memory(os.getpgrp()) > 10 << 20


def test_the_end_of_a_process_is_told_with_its_last_words():
    assert describe_exit(3, "one\ntwo\n\nthree\nfour\n") == "exit status 3: two; three; four"
    assert describe_exit(-11, "") == "signal 11"
