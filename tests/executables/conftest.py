"""Keys and stores without a model: what the store holds is no concern of its."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from porting.diagnostics import Finding
from porting.executables.identity import ExecutableKey
from porting.executables.machine import collect_versions, describe_processor
from porting.executables.store import ExecutableStore
from tests.exports.conftest import parts, step_file  # noqa: F401 - fixtures


def components(**changes: Any) -> Dict[str, Any]:
    """Make the components of a little model: a linear layer, dropout, and a loss."""
    values: Dict[str, Any] = {
        "graph": {
            "mode": "training",
            "operators": [
                ["aten.linear.default", {"input": {"%": 2}, "weight": {"%": 0}, "bias": {"%": 1}}],
                ["aten.dropout.default", {"input": {"%": 3}, "p": 0.1, "train": True}],
                ["aten.sum.default", {"self": {"%": 4}}],
            ],
            "results": [[{"%": 5}]],
        },
        "tensors": {
            "parameters": [
                ["fc.weight", [8, 4], [4, 1], "float32", True],
                ["fc.bias", [8], [1], "float32", True],
            ],
            "buffers": [],
            "inputs": [["x", [16, 4], [4, 1], "float32", False]],
            "constants": [],
            "outputs": [[[], "float32"]],
        },
        "constants": [],
        "plan": {"iterations": 1, "accumulation": 1, "replicas": 1},
        "optimizer": [{"family": "SGD", "momentum": False, "parameters": ["fc.weight", "fc.bias"]}],
        "engine": {"name": "auto", "variant": {}, "settings": {}},
        "versions": collect_versions(),
        "processor": describe_processor(),
        "precision": {"matmul": "highest"},
        "threads": 1,
        "extra": {},
        "explained": {
            "model": "Net",
            "places": [["model.py", 20], ["model.py", 21], ["model.py", 22]],
            "modules": ["fc", "drop", ""],
            "numbers": [{"momentum": 0.0}],
            "shown_constants": [],
        },
    }
    return {**values, **changes}


@pytest.fixture
def make_key() -> Callable[..., ExecutableKey]:
    """Give a function that makes keys; its arguments replace sections."""
    return lambda **changes: ExecutableKey(components(**changes))


@pytest.fixture(name="components")
def written_components(make_key: Callable[..., ExecutableKey]) -> Dict[str, Any]:
    """Give the components of a key as they are in a file."""
    written: Dict[str, Any] = json.loads(json.dumps(make_key().components))
    return written


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Give a folder of compiled programs."""
    folder = tmp_path / "files"
    (folder / "step").mkdir(parents=True)
    (folder / "step" / "program.so").write_bytes(b"machine code" * 100)
    (folder / "layout.json").write_text("{}")
    return folder


@pytest.fixture
def reported() -> List[Finding]:
    """Give the list that the store's findings go to."""
    return []


@pytest.fixture
def store(tmp_path: Path, reported: List[Finding]) -> ExecutableStore:
    """Give an empty store."""
    return ExecutableStore(tmp_path / "cache", report=reported.append)
