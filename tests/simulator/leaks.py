"""What loading processes could leave behind in the process that started them: children, descriptors, shared memory."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, NamedTuple, Set

import pytest

# processes that Python starts once and keeps until it exits
_KEPT_BY_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class Belongings(NamedTuple):
    """Ids of child processes, targets of open descriptors that pass data, and mapped shared memory."""

    children: Set[int]
    num_pipes: int
    shared_memory: Set[str]


def belongings() -> Belongings:
    """List what this process has now."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("there is no /proc to look into")
    gc.collect()
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return Belongings(
        children=_children(os.getpid()),
        num_pipes=sum(_target(link).startswith(("pipe:", "/dev/shm")) for link in Path("/proc/self/fd").iterdir()),
        shared_memory={line.split()[-2] for line in maps if "/dev/shm/" in line},
    )


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Check that a block ends every process it starts, and closes and unmaps all that it shared with them."""
    before = belongings()
    yield
    after = belongings()
    assert after.children - before.children == set()
    assert after.shared_memory - before.shared_memory == set()
    assert after.num_pipes <= before.num_pipes


def is_running(process_id: int) -> bool:
    """Tell whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _children(process_id: int) -> Set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and is_running(int(folder.name)):
            try:
                parent = int((folder / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if parent == process_id and not any(name in command for name in _KEPT_BY_PYTHON):
                found.add(int(folder.name))
    return found


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
