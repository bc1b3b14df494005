"""A timeline has every part of each call in order, and the operators inside of its run."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.bench.call_trace import record_calls

BATCH = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)


@pytest.fixture(scope="module")
def trace():
    """Record two calls of a linear layer."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model.train(), nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(engine="replay"))
    return record_calls(ported, itertools.repeat(BATCH), num_calls=2, program="linear")


def test_each_call_has_its_parts_in_order(trace):
    events = [event for event in trace.to_dict()["traceEvents"] if event.get("args", {}).get("call") == 2]

    parts = [event["name"] for event in events if event["cat"] == event["name"]]
    assert parts == ["loader", "Python", "host to device", "run", "device to host", "Python"]
    assert all(event["dur"] >= 0 for event in events)


def test_operators_lie_in_the_run_that_they_are_shown_in(trace):
    events = trace.to_dict()["traceEvents"]
    run = next(event for event in events if event["name"] == "run")
    operators = [event for event in events if event.get("cat") == "operator" and event["args"]["call"] == 1]

    assert operators != []
    assert all(run["ts"] - 1 <= event["ts"] for event in operators)
    assert all(event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 1 for event in operators)


def test_a_timeline_says_what_was_measured_and_is_json(trace):
    facts = json.loads(trace.to_json())["otherData"]

    assert (facts["program"], facts["num_calls"], facts["engine"]) == ("linear", 2, "replay")
