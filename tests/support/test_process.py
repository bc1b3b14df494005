"""What a process knows of its surroundings: its place among others, the cores it may use; and how it leaves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from porting.support.process import Instance, find_peak_bytes, this_instance, usable_cores, used_cpu_seconds


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith("OMPI_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name)


def test_a_process_by_itself_is_the_only_one():
    assert this_instance() == Instance(index=0, size=1, local_index=0, local_size=1)


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ],
    ids=["mpi", "torchrun"],
)
def test_a_launcher_says_which_process_this_is(monkeypatch, names):
    for name, value in zip(names, "5813"):
        monkeypatch.setenv(name, value)

    assert this_instance() == Instance(5, 8, 1, 3)


def test_without_a_word_on_the_local_place_all_are_on_one_machine(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")

    assert this_instance() == Instance(1, 2, 1, 2)


def test_the_cores_are_those_that_the_process_is_bound_to(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {3, 5}, raising=False)

    assert usable_cores() == 2


@pytest.mark.parametrize(("count", "cores"), [(6, 6), (None, 1)])
def test_the_cores_are_the_machines_where_nothing_says_more(monkeypatch, count, cores):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)

    assert usable_cores() == cores


def test_words_in_place_of_numbers_are_no_launchers(monkeypatch):
    monkeypatch.setenv("RANK", "none")
    monkeypatch.setenv("WORLD_SIZE", "none")

    assert this_instance() == Instance(index=0, size=1, local_index=0, local_size=1)


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
@pytest.mark.parametrize(("ending", "status"), [("", 0), ("raise SystemError('of the program')\n", 1)])
def test_at_its_end_a_process_leaves_the_group_that_it_is_still_in(tmp_path, ending, status):
    program = (
        "import atexit\n"
        "from torch import distributed\n"
        "from porting.support.process import leave_group_at_exit\n"
        "atexit.register(lambda: print('in a group:', distributed.is_initialized()))\n"
        f"distributed.init_process_group('gloo', init_method='file://{tmp_path}/place', rank=0, world_size=1)\n"
        f"leave_group_at_exit()\n{ending}"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (status, "in a group: False\n"), done.stderr


def test_work_takes_processor_time():
    before = used_cpu_seconds()

    sum(range(3_000_000))

    assert used_cpu_seconds() > before


def test_the_peak_of_this_process_has_what_it_holds():
    pytest.importorskip("resource")

    assert find_peak_bytes() > 1 << 20
