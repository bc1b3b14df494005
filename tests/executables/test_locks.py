"""Locks end with the process that holds them, and who waits says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from porting.executables.locks import is_free, lock_file

HOLDER = """
import sys, time
from pathlib import Path
from porting.executables.locks import lock_file
with lock_file(Path(sys.argv[1]), timeout_seconds=10.0):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Give a process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_is_free_again_and_gone_after_the_block(tmp_path):
    with lock_file(tmp_path / "lock", timeout_seconds=0.0) as is_held:
        assert is_held
        assert not is_free(tmp_path / "lock")

    assert is_free(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


def test_who_waits_is_told_once_and_gives_up_in_time(holder, tmp_path):
    told = []

    with lock_file(
        tmp_path / "lock", timeout_seconds=0.3, tell_after_seconds=0.05, tell=lambda: told.append(1)
    ) as held:
        assert not held

    assert told == [1]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_process_holds_nothing(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    with lock_file(tmp_path / "lock", timeout_seconds=5.0) as is_held:
        assert is_held


def test_who_waits_gets_the_lock_when_it_is_given_back(holder, tmp_path):
    started = time.monotonic()
    holder.terminate()

    with lock_file(tmp_path / "lock", timeout_seconds=20.0) as is_held:
        assert is_held

    assert time.monotonic() - started < 20.0


def test_a_lock_in_a_folder_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError), lock_file(tmp_path / "none" / "lock", timeout_seconds=0.0):
        pass
