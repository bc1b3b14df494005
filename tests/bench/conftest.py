"""What the tests of benchmarks share: a tiny workload, quick settings, and records as result files have them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from porting import PortOptions
from porting.bench.choices import BenchSettings, Choices
from porting.bench.measure import measure
from porting.bench.processes import Case
from porting.bench.results import ResultFile, read_results
from porting.bench.workloads import Workload
from porting.diagnostics import PortingError


def make_workload(options=None, *, rows: int = 8, optimizer=None) -> Workload:
    """Make a perceptron with its batch; the same one every time."""
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    batch = torch.randn(rows, 4, generator=generator), torch.randint(3, (rows,), generator=generator)
    made = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) if optimizer is None else optimizer
    return Workload(model, nn.CrossEntropyLoss(), batch, made, options or PortOptions(engine="replay"), "tiny")


QUICK = BenchSettings(rounds=2, calls_per_turn=2, memory=False, data=False, limits=False, layouts=False)


def make_record(*, name: str = "tiny", report=None, **changes) -> dict:
    """Make the record of a case, done if there is a report."""
    case = Case(name=name, target=name, loader="a:b", arguments={}, choices=Choices(engine="replay"))
    result = None if report is None else report.to_dict()
    return {**case.record("done" if report else "not_run", result=result), **changes}


def results_of(*records) -> dict:
    """Make the content of a result file that has these records."""
    case = Case(name="tiny", target="tiny", loader="a:b", arguments={})
    return {**ResultFile([case]).content, "cells": list(records)}


@pytest.fixture(scope="session")
def report():
    """Give one real report, measured once."""
    return measure(make_workload(), settings=QUICK)


@pytest.fixture
def read_back(tmp_path):
    """Write a content to a file and read that."""

    def write_and_read(content) -> dict:
        (tmp_path / "content.json").write_text(json.dumps(content))
        return read_results(tmp_path / "content.json")

    return write_and_read


@pytest.fixture
def problem_of(read_back):
    """Find out what is wrong with the content of a file, nothing where it is read."""

    def find(content) -> str:
        try:
            read_back(content)
        except PortingError as error:
            (note,) = error.finding.notes
            return note
        return ""

    return find
