"""`porting trace`: a file that chrome://tracing and Perfetto read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from porting.cli.main import main

PROGRAM = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 8)

    def forward(self, x):
        return torch.relu(self.first(x))

def make(batch_size=4):
    model = Net()
    batch = torch.randn(batch_size, 16), torch.zeros(batch_size, dtype=torch.int64)
    return model, torch.nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters())

data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.zeros(32, dtype=torch.int64))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train_traced.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def trace(tmp_path: Path, *words: str) -> Dict[str, Any]:
    output = tmp_path / "trace.json"
    assert main(["trace", *words, "-o", str(output)]) == 0
    found: Dict[str, Any] = json.loads(output.read_text("utf-8"))
    return found


def spans_of(document: Dict[str, Any], kind: str) -> List[Dict[str, Any]]:
    return [event for event in document["traceEvents"] if event.get("cat") == kind]


def test_each_call_is_divided(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = trace(tmp_path, f"{program}:make", "--steps", "2")

    for kind in ("loader", "host to device", "run", "device to host"):
        assert [span["args"]["call"] for span in spans_of(document, kind)] == [1, 2]
    assert {span["args"]["call"] for span in spans_of(document, "Python")} == {1, 2}
    assert "2 calls, CPU simulator of an IPU" in capsys.readouterr().out


def test_operators_lie_inside_of_their_run_with_module_and_line(program: str, tmp_path: Path) -> None:
    document = trace(tmp_path, f"{program}:make", "--steps", "2", "--accumulation", "2")

    for run in spans_of(document, "run"):
        inside = [span for span in spans_of(document, "operator") if span["args"]["call"] == run["args"]["call"]]
        assert all(run["ts"] <= span["ts"] + 0.01 for span in inside)
        assert all(span["ts"] + span["dur"] <= run["ts"] + run["dur"] + 0.01 for span in inside)
        relus = [span for span in inside if span["name"] == "aten.relu.default"]
        assert len(relus) == 2
        assert "train_traced.py:10" in relus[0]["args"]["source"]
        modules = {span["args"]["module"] for span in inside if span["args"]["phase"] == "backward"}
        assert {"first", "Net", "CrossEntropyLoss"} <= modules
    passes = [span["name"] for span in spans_of(document, "pass") if span["args"]["call"] == 1]
    assert passes == ["forward", "backward", "forward", "backward", "update"]


def test_the_file_says_whose_times_they_are(program: str, tmp_path: Path) -> None:
    facts = trace(tmp_path, f"{program}:make", "--steps", "1")["otherData"]

    assert "CPU, on which the simulator runs" in facts["times"]
    assert "instrumented replay" in facts["operators"]


def test_a_loader_of_the_users_is_traced(program: str, tmp_path: Path) -> None:
    document = trace(tmp_path, f"{program}:make", "--data", f"{program}:data", "--steps", "9")

    assert len(spans_of(document, "loader")) == 9


def test_a_file_that_cannot_be_written_is_a_finding(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{program}:make", "-o", f"{program}/trace.json"]) == 2

    assert "E029" in capsys.readouterr().err


def test_inference_is_refused(program: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["trace", f"{program}:make", "--mode", "inference"])

    assert stopped.value.code == 2
