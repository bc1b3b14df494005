"""What a step frees stays with the process, unless the user said otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from porting.engines.freed_memory import keep_freed_memory

_PAGES_OF_STEPS = """
import resource, sys, torch
from porting.engines.freed_memory import keep_freed_memory, return_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else False

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


def pages_of_steps(choice, **environment):
    done = subprocess.run(
        [sys.executable, "-c", _PAGES_OF_STEPS, choice],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin", **environment},
    )
    kept, pages, resident = done.stdout.split()
    return kept == "True", int(pages), int(resident)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_a_step_gets_the_pages_of_the_one_before():
    kept, pages, resident = pages_of_steps("keep")
    _, pages_of_default, _ = pages_of_steps("leave")

    if not kept:
        pytest.skip("the C library is not GNU's")
    # where the blocks lie may change a little from step to step
    assert pages < pages_of_default / 5
    assert resident < 400  # what was kept went back when it was asked for


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_chosen_stays(monkeypatch, name):
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=131072")

    assert keep_freed_memory() is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_a_choice_of_something_else_is_none():
    kept, _pages, _resident = pages_of_steps("keep", MALLOC_ARENA_MAX="2", GLIBC_TUNABLES="glibc.rtld.nns=4")

    assert kept


def test_elsewhere_nothing_is_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    assert keep_freed_memory() is False
