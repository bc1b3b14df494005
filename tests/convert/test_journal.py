"""Killed at any moment, a change of several files leaves them all as they were or all changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from porting.convert.journal import change_files, finish
from porting.diagnostics import PortingError
from porting.executables.folders import try_lock
from porting.support.atomic_files import write_atomically

BEFORE = {"train.py": b"old train", "package/model.py": b"old model", "package/loss.py": b"old loss"}
AFTER = {
    "train.py": b"new train",
    "package/model.py": b"new model",
    "package/loss.py": b"new loss",
    "more/new.py": b"n",
}

# ends at the one of its uses of files that the command names, if it makes so many
WRITER = """\
import os, signal, sys
from pathlib import Path
from tests.convert.test_journal import AFTER, BEFORE
from porting.convert.journal import {imported}
count, last, how = 0, int(sys.argv[1]), getattr(signal, sys.argv[2])
def end(event, _args):
    global count
    if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "subprocess.Popen"):
        count += 1
        if count == last:
            os.kill(os.getpid(), how)
sys.addaudithook(end)
root = Path.cwd()
{action}
last = -1
print("complete")
"""
CHANGE = "change_files(root, *({root / name: own for name, own in files.items()} for files in (AFTER, BEFORE)))"
MAKE = "with make_folder(root / 'out') as folder: folder.mkdir(); (folder / 'train.py').write_bytes(b'new train')"


@pytest.fixture
def root(tmp_path):
    for name, content in BEFORE.items():
        write_atomically(tmp_path / name, content)
    return tmp_path


def write(root, moment, how="SIGKILL", action=CHANGE, imported="change_files"):
    """Run a writer that ends at a moment; tell whether it came to its end."""
    text = WRITER.format(action=action, imported=imported)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", text, str(moment), how]
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert not ended.stderr or "KeyboardInterrupt" in ended.stderr, ended.stderr
    wait_for_watcher(root)
    return ended.stdout == "complete\n"


def wait_for_watcher(root):
    folder = os.open(root, os.O_RDONLY)
    while not try_lock(folder):
        os.sched_yield()
    os.close(folder)


def read_tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_a_change_that_ends_at_any_moment_is_whole_or_none(how, root):
    inodes = {name: (root / name).stat().st_ino for name in BEFORE}
    seen, moment, is_complete = set(), 0, False
    while not is_complete:
        moment += 1
        is_complete = write(root, moment, how)
        found = read_tree(root)
        assert found in (BEFORE, AFTER), moment
        seen.add("after" if found == AFTER else "before")
        if found == BEFORE:
            assert {name: (root / name).stat().st_ino for name in BEFORE} == inodes
            assert not (root / "more").exists()
        for name, content in BEFORE.items():
            (root / name).write_bytes(content)
        inodes = {name: (root / name).stat().st_ino for name in BEFORE}
        (root / "more" / "new.py").unlink(missing_ok=True)
        if (root / "more").exists():
            (root / "more").rmdir()

    assert moment > 20
    assert seen == {"before", "after"}


@pytest.mark.slow
def test_a_folder_that_is_made_is_there_as_a_whole_or_not_at_all(root):
    moment, is_complete = 0, False
    while not is_complete:
        moment += 1
        is_complete = write(root, moment, action=MAKE, imported="make_folder")
        found = {name: own for name, own in read_tree(root).items() if name not in BEFORE}
        assert found in ({}, {"out/train.py": b"new train"}), moment
        if found:
            (root / "out" / "train.py").unlink()
            (root / "out").rmdir()
        assert not (root / "out").exists()

    assert moment > 5


def test_the_next_change_goes_back_where_the_watcher_was_killed_too(root):
    plan = {"files": {str(root / "train.py"): ""}, "old": [str(root / "train.py")], "folders": []}
    write_atomically(root / ".porting-conversion.json", json.dumps(plan).encode())
    os.link(root / "train.py", root / ".train.py.porting-old")
    write_atomically(root / "train.py", b"half of a change")

    change_files(root, {root / "package" / "loss.py": b"new loss"}, {root / "package" / "loss.py": b"old loss"})

    assert read_tree(root) == {**BEFORE, "package/loss.py": b"new loss"}


def test_to_finish_twice_is_to_finish_once(root):
    finish(root)
    finish(root)

    assert read_tree(root) == BEFORE


def test_a_file_that_has_changed_meanwhile_keeps_its_change(root):
    with pytest.raises(PortingError) as caught:
        change_files(root, {root / "train.py": b"new"}, {root / "train.py": b"what was read"})

    assert caught.value.finding.code == "X009"
    assert read_tree(root) == BEFORE


def test_a_folder_that_another_process_changes_is_left_alone(root, monkeypatch):
    monkeypatch.setattr("porting.convert.journal._PATIENCE_SECONDS", 0.0)
    holder = os.open(root, os.O_RDONLY)
    assert try_lock(holder)

    with pytest.raises(PortingError) as caught:
        change_files(root, {root / "train.py": b"new"}, {root / "train.py": BEFORE["train.py"]})
    os.close(holder)

    assert caught.value.finding.code == "X027"
    assert read_tree(root) == BEFORE


def test_without_hard_links_a_change_is_whole_all_the_same(root, monkeypatch):
    def refuse(*_args):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)

    change_files(root, {root / "train.py": b"new"}, {root / "train.py": BEFORE["train.py"]})

    assert read_tree(root) == {**BEFORE, "train.py": b"new"}


def test_a_killed_watcher_changes_nothing(root, monkeypatch):
    started, popen, replace = [], subprocess.Popen, os.replace

    def start(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[0]

    def kill_and_replace(*paths):
        started[0].kill()
        started[0].wait()
        return replace(*paths)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(os, "replace", kill_and_replace)
    change_files(root, {root / "train.py": b"new"}, {root / "train.py": BEFORE["train.py"]})

    assert read_tree(root) == {**BEFORE, "train.py": b"new"}
    assert not any(path.name.startswith(".") for path in Path(root).iterdir())
