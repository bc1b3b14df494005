"""What a step frees stays with the process, unless the user said otherwise."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from porting.engines.calls.freed_memory import keep_freed_memory

_PAGES_OF_STEPS = """
import ctypes
# huge pages, of which a busy machine has more or fewer, would be counted as one each
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
import resource, torch
from porting.engines.calls.freed_memory import keep_freed_memory, return_freed_memory

kept = keep_freed_memory()

def step():
    # many blocks of 8 MiB, so that there is much to give back at the end of each
    blocks = [torch.ones(1 << 21) for _ in range(30)]
    del blocks

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(3):
    step()
before = pages()
for _ in range(5):
    step()
after = pages()
return_freed_memory()
resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
print(kept, after - before, resident >> 20)
"""


def output_of(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin", **environment},
    )
    return done.stdout


def pages_of_steps(**environment):
    kept, pages, resident = output_of(_PAGES_OF_STEPS, **environment).split()
    return kept == "True", int(pages), int(resident)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_a_step_gets_the_pages_of_the_one_before():
    kept, pages, resident = pages_of_steps()

    if not kept:
        pytest.skip("the C library is not GNU's")
    # Where the blocks lie may change a little from step to step. Left alone, the library adapts itself, and then most
    # often all pages are new ones, but not always.
    all_pages = 5 * 30 * (8 << 20) // resource.getpagesize()
    assert pages < all_pages / 50
    assert resident < 400  # what was kept went back when it was asked for


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_chosen_stays(monkeypatch, name):
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=131072")

    assert keep_freed_memory() is False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_a_choice_of_something_else_is_none():
    kept, _pages, _resident = pages_of_steps(MALLOC_ARENA_MAX="2", GLIBC_TUNABLES="glibc.rtld.nns=4")

    assert kept


_BLOCKS_IN_HOLES = """
import torch
from porting.engines.calls.freed_memory import give_back_what_is_freed, keep_freed_memory

print(give_back_what_is_freed(), keep_freed_memory())
blocks = [torch.ones(1 << 22) for _ in range(16)]
del blocks[::2]  # half of 256 MiB, between others that stay
resident = int(open("/proc/self/statm").read().split()[1])
more = [torch.ones(1 << 22) for _ in range(8)]
print(resident, int(open("/proc/self/statm").read().split()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_where_memory_is_saved_a_block_goes_back_although_others_lie_behind_it():
    answers, pages = output_of(_BLOCKS_IN_HOLES).splitlines()
    before, after = map(int, pages.split())

    if answers == "False False":
        pytest.skip("the C library is not GNU's")
    assert answers == "True False"  # what was said once for the process stays said
    assert (after - before) * resource.getpagesize() == pytest.approx(128 << 20, rel=0.1)


def test_elsewhere_nothing_is_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    assert keep_freed_memory() is False
