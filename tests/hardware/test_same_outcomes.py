"""The same calls on PopTorch's own front end and on the simulator: outcome against outcome.

It runs where `poptorch` can be imported, on the Python that it needs. The simulator's side runs in a process of the
interpreter that the environment variable PORTING_SIMULATOR_PYTHON names. `differences.py` says when two outcomes are
the same; the tables below list the calls that differ, and an entry that no longer does is a failure.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

if importlib.util.find_spec("poptorch") is None:
    pytest.skip("there is no module `poptorch` to compare the simulator with", allow_module_level=True)

import poptorch

from porting.support.poptorch_releases import name_release
from tests.hardware.calls import CALLS
from tests.hardware.differences import difference

_ROOT = Path(__file__).parents[2]
_SIMULATOR = "PORTING_SIMULATOR_PYTHON"

# These are limits of what stands in for the compiled core, and say nothing of an IPU.
LIMITS_OF_THE_CORE = {
    "optimizers: AdamW(bias_correction=False)": "the stub leaves the correction out, PopTorch 3.4 applies it",
    "optimizers: another loss scaling that was not passed": "the stub looks at the constants of groups only",
    "losses: l1_loss with 'mean'": "the stub sees the parts of l1_loss, which mark no loss",
    "losses: l1_loss with 'sum'": "the stub sees the parts of l1_loss, which mark no loss",
    "losses: huber_loss with 'mean'": "which functions of torch mark a loss is for the core to say",
    "losses: huber_loss with 'sum'": "which functions of torch mark a loss is for the core to say",
    "tools: a file that is none": "the stub reads no files",
}

# These come from the versions of torch and Python that both sides have.
VERSIONS = {
    "optimizers: torch's Adam(betas=[0.8, 0.9])": "newer torch makes a tuple of the list before anybody sees it",
    "losses: labels as floats": "the words are torch's and have changed",
}

# These are wanted, and on the page docs/simulator-differences.md.
DIFFERENCES = {
    "loaders: too little for a batch": "the simulator says that an epoch has no batches",
    "optimizers: PopTorch's optimizer for torch's": "the simulator does not call settings ignored that it uses",
    "optimizers: another type of optimizer": "the simulator does not call settings ignored that it uses",
    "arguments: a class without a parser": "the simulator refuses tensors that would be compiled in unseen",
    "arguments: no module": "the simulator says what it needs, the front end what a function lacks",
    "arguments: no module, to be trained": "the simulator says what it needs, the front end what a function lacks",
    "blocks: three IPUs": "the simulator is no hardware, which alone needs a power of two",
}

# These come from the release of PopTorch, where it is not the one that the simulator stands in for.
_OF_THE_RELEASE = {"tools: the beginning of the version": "the simulator has that of PopTorch 3.4"}
RELEASE = {} if name_release(poptorch.__version__) == "3.4" else _OF_THE_RELEASE

_LISTED = {**LIMITS_OF_THE_CORE, **VERSIONS, **RELEASE, **DIFFERENCES}


@pytest.fixture(scope="session")
def front_end() -> Dict[str, Any]:
    """Give the outcomes of all calls on the module `poptorch`."""
    return _outcomes(sys.executable, "poptorch", search_path=os.pathsep.join(sys.path))


@pytest.fixture(scope="session")
def simulator() -> Dict[str, Any]:
    """Give the outcomes of all calls on the simulator."""
    if not os.environ.get(_SIMULATOR):
        pytest.skip(f"{_SIMULATOR} names no interpreter for the simulator's side")
    return _outcomes(os.environ[_SIMULATOR], "porting.simulator", search_path="")


def _outcomes(python: str, module: str, *, search_path: str) -> Dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), search_path]), "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "tests.hardware.outcomes", module]
    done = subprocess.run(command, env=environment, cwd=str(_ROOT), capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    outcomes: Dict[str, Any] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_has_the_outcome_that_it_has_on_the_front_end(
    name: str, front_end: Dict[str, Any], simulator: Dict[str, Any]
) -> None:
    found = difference(front_end[name], simulator[name])

    if name in _LISTED:
        assert found, f"the same by now, so it is no longer to be listed: {_LISTED[name]}"
    else:
        assert not found, f"{found}:\n{front_end[name]}\n{simulator[name]}"


def test_only_calls_are_listed() -> None:
    assert set(_LISTED) <= set(CALLS)
