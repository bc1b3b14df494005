"""The real compiler, once: a step is compiled, measured, kept, and loaded by a process that has no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, torch
from torch import nn
import porting.simulator as poptorch

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(22, 44), nn.ReLU(), nn.Linear(44, 3))

    def forward(self, x, y):
        output = self.layers(x)
        return output, nn.functional.cross_entropy(output, y)

torch.manual_seed(0)
x, y = torch.randn(32, 22), torch.randint(3, (32,))
model = Net()
options = poptorch.Options().deviceIterations(4).useEngine(sys.argv[1])
executor = poptorch.trainingModel(model, options, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
losses = [float(executor(x, y)[1].detach()) for _ in range(5)]
obtained = executor.device_session.compiled.obtained
print(json.dumps({
    "losses": losses, "engine": obtained.choice.engine, "origin": obtained.origin,
    "codes": [finding.code for finding in obtained.findings],
    "inductor": "torch._inductor" in sys.modules,
}))
"""


def run(engine, folder, **environment):
    variables = {**os.environ, "PORTING_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, engine], stdout=subprocess.PIPE, check=True, text=True, env=variables
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def compiled(folder):
    return run("aot", folder)


@pytest.mark.slow
def test_a_compiled_step_has_the_losses_of_replay(compiled, folder):
    replayed = run("replay", folder)

    assert (compiled["engine"], compiled["origin"], compiled["codes"]) == ("aot", "compiled", [])
    assert compiled["losses"] == pytest.approx(replayed["losses"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ready", "aot"])
def test_another_process_loads_it_without_a_compiler(compiled, folder, engine):
    loaded = run(engine, folder, PATH="/no/compiler")

    assert (loaded["engine"], loaded["origin"], loaded["inductor"]) == ("aot", "hit", False)
    assert loaded["losses"] == compiled["losses"]


@pytest.mark.slow
def test_without_a_compiler_the_step_is_replayed_and_said_so(tmp_path):
    replayed = run("aot", tmp_path, PATH="/no/compiler")

    assert (replayed["engine"], replayed["codes"]) == ("replay", ["E001"])
