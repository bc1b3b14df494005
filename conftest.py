"""What holds for every test, those in docstrings and pages included: one random state, no settings from outside.

And where their time goes: the seconds of each package are in the summary.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections import Counter
from typing import Any, Dict, Iterator, List, Optional

import pytest
import torch

# Small tensors gain nothing from threads, and where other programs run threads that wait for each other lose a lot.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

# pytest compiles all of a package anew that has a plugin, with what asserts compare; here the tests alone need that
for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).discard("porting")

# A shell lets what runs in its background ignore interruptions, and so would all programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector leave the tests themselves alone.

    There are thousands, which live to the end: looking through them took a second each time that a test collects.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


# examples that start processes of torch; a docstring cannot say so itself
_SLOW_EXAMPLES = (
    "porting.bench.measure.bench",
    "porting.bench.children.SideProcess",
    "porting.bench.children.start_side",
    "benchmarks.md",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Mark slow examples, and most variants of sampled laws, before pytest leaves out what is marked."""
    laws: Dict[str, List[pytest.Item]] = {}
    for item in items:
        if item.name in _SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("sampled"):
            laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for variants in laws.values():
        count: int = variants[0].get_closest_marker("sampled").args[0]
        for item in random.Random(0).sample(variants, len(variants))[count:]:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: Optional[pytest.Item]) -> Iterator[None]:
    """Let the garbage collector leave alone what a file has loaded.

    It would look through it at every test that collects, for seconds once there are several libraries.
    """
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add what a test took to its package: `tests/api` for those of `tests/api/test_port.py`."""
    folders = report.nodeid.partition("::")[0].split("/")[:-1]
    _seconds["/".join(folders[:2]) or "."] += report.duration


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write down the packages that took a second or more, the longest first."""
    terminalreporter.section("seconds by package")
    for package, seconds in _seconds.most_common():
        if seconds >= 1.0:
            terminalreporter.write_line(f"{seconds:8.1f}  {package}")


@pytest.fixture(autouse=True)
def same_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seed torch, ask for the simulator, and leave nothing behind in the generator.

    No test becomes another program: the status of all tests would be that program's.
    """
    monkeypatch.setenv("PORTING_DEVICE", "sim")
    monkeypatch.setattr(os, "execve", _refuse_to_become)
    with torch.random.fork_rng(devices=[]):
        # not `torch.manual_seed`, which keeps the stack of its caller for each kind of device that there may be
        torch.default_generator.manual_seed(0)
        yield


def _refuse_to_become(path: object, *_arguments: object) -> None:
    raise AssertionError(f"a test is about to become `{path}`")
