"""Folders appear and disappear as a whole, and what dead processes left is cleared away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from porting.executables import store as store_module
from porting.executables.folders import is_free, lock_file


def hidden_in(store):
    return [path.name for path in store.programs.iterdir() if path.name.startswith((".new-", ".removing-"))]


def test_what_a_dead_process_left_is_cleared_away_and_what_a_living_one_writes_is_not(store, make_key, files):
    store.keep(make_key(), files, {})
    long_ago = time.time() - 3600
    for name in (".new-1-dead", ".removing-2-dead"):
        shutil.copytree(files, store.programs / name)
        os.utime(store.programs / name, (long_ago, long_ago))

    with store_module.new_folder(store.programs) as living:
        os.utime(living, (long_ago, long_ago))
        assert store.sweep() == 2
        assert hidden_in(store) == [living.name]

    assert len(store.list_entries()) == 1


def test_a_folder_that_was_made_just_now_may_not_be_locked_yet(store):
    (store.programs / ".new-3-young").mkdir(parents=True)

    assert store.sweep() == 0


HOLDER = """
import sys, time
from pathlib import Path
from porting.executables.folders import lock_file
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

    with lock_file(tmp_path / "lock", timeout_seconds=60.0) as is_held:
        assert is_held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_lock_does_not_outlive_its_process_in_one_that_it_has_forked(tmp_path):
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from porting.executables.folders import lock_file\n"
        "with lock_file(Path(sys.argv[1]), timeout_seconds=0):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        print('forked', os.getpid(), flush=True)\n"
        "        time.sleep(60)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    forked = int(process.stdout.readline().split()[1])
    process.kill()
    process.wait()

    try:
        with lock_file(tmp_path / "lock", timeout_seconds=0) as is_held:
            assert is_held
    finally:
        os.kill(forked, signal.SIGKILL)
        process.stdout.close()


def test_who_waits_gets_the_lock_when_it_is_given_back(holder, tmp_path):
    holder.terminate()

    with lock_file(tmp_path / "lock", timeout_seconds=60.0) as is_held:
        assert is_held


def test_a_lock_in_a_folder_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError), lock_file(tmp_path / "none" / "lock", timeout_seconds=0.0):
        pass
