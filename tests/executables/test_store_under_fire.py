"""Eight processes share a store and are killed at any moment; what is found afterwards is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from porting.executables.folders import STALE_SECONDS
from porting.executables.store import ExecutableStore

NUM_PROCESSES = 8
NUM_KILLS = 30

WORKER = """
import os, random, sys, tempfile
from pathlib import Path
from porting.executables.identity import ExecutableKey
from porting.executables.store import ExecutableStore

folder, seed = sys.argv[1:]
chance = random.Random(int(seed))
store = ExecutableStore(folder, max_bytes=400_000, report=lambda finding: complain(finding.message))

def complain(text):
    with open(Path(folder).parent / "complaints", "a") as file:
        file.write(text + chr(10))

def content_of(key):
    return (key.digest * 1000).encode()

print("ready", flush=True)
with tempfile.TemporaryDirectory(dir=Path(folder).parent) as scratch:
    while True:
        key = ExecutableKey({"graph": {"mode": "training", "operators": []}, "number": chance.randrange(12)})
        what = chance.random()
        if what < 0.5:
            entry = store.find(key)
            if entry is not None:
                with entry:
                    for part in range(3):
                        if entry.file(f"part{part}/program.so").read_bytes() != content_of(key):
                            complain("another content: " + key.digest)
        elif what < 0.9:
            with store.lock(key, timeout_seconds=1.0):
                files = Path(scratch, str(chance.random()))
                for part in range(3):
                    (files / f"part{part}").mkdir(parents=True)
                    (files / f"part{part}" / "program.so").write_bytes(content_of(key))
                store.keep(key, files, {}, sources={}, replace=chance.random() < 0.3)
        elif what < 0.95:
            store.failures.note(key, "aot", "no reason")
        else:
            store.shrink(max_bytes=chance.randrange(400_000))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_processes_that_are_killed_at_any_moment_leave_whole_executables(tmp_path):
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    folder = tmp_path / "cache"
    chance = random.Random(0)

    def start(seed):
        words = [sys.executable, str(program), str(folder), str(seed)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    workers = [start(number) for number in range(NUM_PROCESSES)]
    for worker in workers:
        worker.stdout.readline()
    errors = b""
    for number in range(NUM_KILLS):
        time.sleep(chance.uniform(0.02, 0.15))
        victim = chance.randrange(NUM_PROCESSES)
        workers[victim].send_signal(signal.SIGKILL)
        errors += workers[victim].communicate()[1]
        workers[victim] = start(1000 + number)
    for worker in workers:
        worker.kill()
        errors += worker.communicate()[1]

    assert errors == b""
    assert not (tmp_path / "complaints").exists(), (tmp_path / "complaints").read_text()
    store = ExecutableStore(folder)
    assert [entry.problem for entry in store.list_entries(is_thorough=True) if entry.problem] == []
    make_old(folder)
    store.sweep()
    assert leftovers_in(store) == []
    assert store.list_entries()


def make_old(folder):
    before = time.time() - 2 * STALE_SECONDS
    for path in folder.rglob("*"):
        os.utime(path, (before, before))


def leftovers_in(store):
    hidden = [path.name for path in store.programs.glob(".*") if path.name.startswith((".new-", ".removing-"))]
    locks = [path.name for path in (store.programs / ".locks").glob("*")]
    return hidden + locks + [path.name for path in (store.programs / ".failures").glob(".*")]
