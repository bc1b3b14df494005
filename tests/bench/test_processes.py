"""A case runs in a process of its own, there is a record whatever becomes of it, and its last words are told."""

from __future__ import annotations

import dataclasses
import textwrap

import pytest

from porting.bench.choices import Choices
from porting.bench.processes import Case, run_case

from .conftest import QUICK

PROGRAM = """
import os
import signal
import time

import torch


def make():
    model = torch.nn.Linear(3, 2)
    return model, torch.nn.CrossEntropyLoss(), (torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))


def raises():
    raise ValueError("no data here")


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    time.sleep(600)


def hungry():
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
"""


@pytest.fixture
def run_one(tmp_path):
    """Run the case of one function of a program."""
    (tmp_path / "case_program.py").write_text(textwrap.dedent(PROGRAM))

    def run(function: str, **settings):
        choices = Choices(engine="replay")
        target = f"{tmp_path / 'case_program.py'}:{function}"
        case = Case(
            name=function,
            target=target,
            loader="porting.bench.programs:load_workload",
            arguments={"target": target, "choices": dataclasses.asdict(choices)},
            choices=choices,
            settings=QUICK,
        )
        return run_case(case, cache_dir=None, **{"timeout": 120.0, **settings})

    return run


@pytest.mark.slow
def test_a_case_is_measured(run_one):
    said = []

    record = run_one("make", progress=lambda text, share: said.append(text))

    assert (record["status"], record["reason"]) == ("done", "")
    assert record["result"]["parity"]["verdict"] == "pass"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        ("raises", "failed", "E021"),
        ("missing", "failed", "E020"),
        ("dies", "out_of_memory", "signal 9"),
        ("hungry", "out_of_memory", "can't allocate memory"),
    ],
)
def test_a_case_that_ends_badly_says_why(run_one, function, status, reason):
    record = run_one(function)

    assert (record["status"], record["result"]) == (status, None)
    assert reason in record["reason"]


@pytest.mark.slow
def test_a_case_that_hangs_is_given_up(run_one):
    record = run_one("hangs", timeout=3.0)

    assert (record["status"], record["reason"]) == ("timeout", "it ran longer than 3 s")
