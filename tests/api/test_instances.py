"""Ported models in several processes train as one does with all replicas, whoever has started the processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from porting.diagnostics import OptionError
from porting.options import PortOptions, to_poptorch

PROGRAM = """
import json, sys, torch, porting

instance = porting.this_instance()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
options = porting.PortOptions(micro_batch=4 // instance.size)
ported = porting.to_ipu(model, torch.nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")
inputs, labels = torch.linspace(-1, 1, 16).reshape(4, 4), torch.tensor([0, 1, 1, 0])
rows = slice(instance.index * options.micro_batch, (instance.index + 1) * options.micro_batch)
for _step in range(3):
    ported(inputs[rows], labels[rows])
weights = ported.state_dict()["weight"].flatten().tolist()
with open(f"{sys.argv[1]}/{instance.size}-{instance.index}.json", "w") as file:
    json.dump(weights, file)
"""

LAUNCHERS = {
    "one process": [],
    "porting run": ["-m", "porting", "run", "--num-instances", "2"],
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
}


def clean_environment():
    launched = ("OMPI_", "POPDIST_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "PORTING_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launched)}
    return {**kept, "OMP_NUM_THREADS": "1"}


def weights_of(launcher, folder):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, *LAUNCHERS[launcher], str(program), str(folder)]
    subprocess.run(command, env=clean_environment(), check=True, capture_output=True, timeout=120)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Train in one process."""
    return weights_of("one process", tmp_path_factory.mktemp("alone"))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["porting run", "torchrun"])
def test_gradients_are_averaged_over_all_instances(launcher, alone, tmp_path):
    together = weights_of(launcher, tmp_path)

    assert len(together) == 2
    assert together[0] == together[1]
    assert together[0] == pytest.approx(alone[0], rel=1e-5)


@pytest.fixture
def launched(monkeypatch):
    """Give a function that sets the launcher's variables for this process alone."""

    def launch(**variables):
        for name in [name for name in os.environ if name.startswith(("OMPI_", "POPDIST_"))]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return launch


def test_the_place_that_torchrun_gives_reaches_the_options(poptorch, launched):
    launched(RANK="1", WORLD_SIZE="2")

    vendor = to_poptorch(PortOptions(replicas=3), poptorch, training=True)

    assert (vendor.Distributed.processId, vendor.Distributed.numProcesses) == (1, 2)
    assert vendor.replication_factor == 3


def test_options_of_instances_are_popdists(monkeypatch, launched):
    launched(POPDIST_NUM_TOTAL_REPLICAS="4")
    asked = []
    popdist = SimpleNamespace(getNumLocalReplicas=lambda: 2, init=lambda: asked.append("init"))
    vendor = SimpleNamespace(deviceIterations=lambda count: asked.append(count), broadcastBuffers=lambda keep: None)
    vendor.outputMode = lambda mode: None
    monkeypatch.setitem(sys.modules, "popdist_of_the_machine", popdist)
    monkeypatch.setitem(
        sys.modules, "popdist_of_the_machine.poptorch", SimpleNamespace(Options=lambda _num_ipus: vendor)
    )
    backend = SimpleNamespace(Options=None, OutputMode=SimpleNamespace(All=2), __name__="vendor")

    made = to_poptorch(
        PortOptions(replicas=2, device_iterations=5), backend, training=False, popdist="popdist_of_the_machine"
    )

    assert made is vendor
    assert asked == ["init", 5]


def test_another_number_of_replicas_than_the_launchers_is_refused(launched):
    launched(POPDIST_NUM_TOTAL_REPLICAS="4", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")

    with pytest.raises(OptionError) as caught:
        to_poptorch(PortOptions(), SimpleNamespace(), training=True, popdist="porting.simulator.companions.popdist")

    assert caught.value.code == "P002"
    assert "`replicas` is 1, but the launcher gives each instance 2" in caught.value.finding.message
