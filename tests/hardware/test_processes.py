"""Programs of several processes on the hardware path: asynchronous loading, instances, poprun's variables."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

ASYNCHRONOUS = """
import torch, poptorch, porting
from torch import nn

if __name__ == "__main__":
    options = porting.PortOptions(micro_batch=8)
    ported = porting.to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(), options=options, device="ipu")
    data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randint(3, (48,)))
    loader = ported.dataloader(data, shuffle=True, num_workers=1, mode=poptorch.DataLoaderMode.Async)
    counts = [sum(1 for x, y in loader if len(ported(x, y)) == 2) for epoch in range(2)]
    loader.terminate()
    print("calls", *counts, len(loader))
"""

INSTANCE = """
import os, torch, porting
from torch import nn

options = porting.PortOptions(micro_batch=4, seed=1)
ported = porting.to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(), options=options, device="ipu")
data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randint(3, (48,)))
loader = ported.dataloader(data, shuffle=True)
share = ported.dataloader(porting.partition(data, shuffle=True))
print("batches", len(list(loader)), len(list(share)), loader.options.Distributed.numProcesses)
print("sum", porting.sum_over_instances([1.0]).tolist())
"""

UNDER_POPRUN = """
import sys, types, torch
import poptorch, porting
from torch import nn

popdist, companion = types.ModuleType("popdist"), types.ModuleType("popdist.poptorch")
popdist.getNumLocalReplicas, popdist.init = lambda: 2, lambda: None

class Options(poptorch.Options):
    def __init__(self, ipus_per_replica=None):
        super().__init__()
        self.replicationFactor(2)
        self.Distributed.configureProcessId(0, 2)

companion.Options, popdist.poptorch = Options, companion
sys.modules.update({"popdist": popdist, "popdist.poptorch": companion})
options = porting.PortOptions(micro_batch=4, replicas=2)
ported = porting.to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(), options=options, device="ipu")
output, loss = ported(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64))
print("loss", bool(torch.isfinite(loss).all()))
"""


def test_batches_can_be_loaded_by_another_process(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(ASYNCHRONOUS)

    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)

    assert "calls 6 6 6\n" in done.stdout, done.stderr
    assert done.returncode == 0


def test_instances_share_a_dataset_out_and_add_up(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(INSTANCE)
    port = free_port()
    processes = [start_instance(program, rank, port) for rank in (0, 1)]
    try:
        told = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()

    assert ["batches 6 6 2\nsum [2.0]\n" in text for text in told] == [True, True], told
    assert [process.returncode for process in processes] == [0, 0]


def start_instance(program, rank, port):
    """Start a program as `torchrun --nproc_per_node 2` does."""
    variables = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen(
        [sys.executable, str(program)], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def test_options_come_from_popdist_under_poprun(fresh):
    ended = fresh.run(UNDER_POPRUN, variables={"POPDIST_NUM_TOTAL_REPLICAS": "4"})

    assert ended.output.endswith("loss True\n"), ended.output
