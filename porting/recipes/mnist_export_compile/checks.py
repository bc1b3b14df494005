"""Padding changes no loss, nor do the device and a computation order; and three processes hand over the executable."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, List

import torch

import porting
from porting.models import mlp
from porting.recipe_chain import chain_of_equal_losses, demand, holds, measured, reaches, run_program

# two sweeps of 13 batches, so that the padded one at the end is in it
NUM_STEPS = 26

# the test becomes the device's; the flags, and what they do
MAX_CHANGED_LINES = {2: 13, 4: 15}

QUICK = ("--unit", "100", "--iterations", "26", "--noplot")
MOST_DIFFERENT = 1e-4


def run(step: Any, folder: Path, *flags: str) -> str:
    """Run the program as a process of its own; return its output."""
    return run_program(step.__file__, *QUICK, *flags, folder=folder)


def losses_in(folder: Path) -> List[float]:
    """Read the losses that the program has written."""
    return [float(line) for line in (folder / "result" / "log.txt").read_text(encoding="utf-8").split()]


def flags_work(step: ModuleType) -> str:
    """Train on random numbers, and continue from the weights."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(step, folder, "--use-fake-data")
        first = losses_in(folder)
        run(step, folder, "--use-fake-data", "--resume", "result/model.pt")
        demand(losses_in(folder)[0] < first[0], "training does not go on from the weights")
    return f"loss {first[0]:.2f} -> {first[-1]:.2f}, then it goes on"


def padding_is_ignored(step: ModuleType) -> str:
    """Compare the loss of a padded batch with that of its real samples, and their gradients."""
    torch.manual_seed(0)
    model, images = mlp.build(sizes=(784, 20, 10)), torch.rand(50, 784)
    labels = torch.randint(10, (50,))
    padded = torch.cat([images, images[:1].expand(50, -1)])
    ignored = torch.cat([labels, torch.full((50,), step.IGNORED)])
    gradients = []
    for inputs, targets in ((images, labels), (padded, ignored)):
        model.zero_grad()
        torch.nn.CrossEntropyLoss(ignore_index=step.IGNORED)(model(inputs), targets).backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    difference = float((gradients[0] - gradients[1]).abs().max())
    return demand(difference <= MOST_DIFFERENT, f"gradients differ by {difference:.1e}")


def batch_is_recorded(step: ModuleType) -> str:
    """Export a step and read the file."""
    with tempfile.TemporaryDirectory() as name:
        path = str(Path(name) / "mlp.step")
        step.train(words=[*QUICK, "--batchsize", "50", "--export", path])
        batch = porting.load_step(path).batch
    return demand(batch.micro == 50, str(batch))


def batch_is_checked(step: ModuleType) -> str:
    """Export a step in another process, and demand another batch than it was exported for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        printed = run(step, folder, "--export", "mlp.step")
        command = [sys.executable, "-m", "porting", "compile", "mlp.step", "--batch", "64", "--engine", "replay"]
        refused = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
        exported = porting.load_step(folder / "mlp.step")
    is_refused = "E025" in refused.stderr and refused.returncode != 0
    demand(is_refused, f"another batch is not refused: {refused.stderr}")
    return f"{printed.strip()}; another batch is E025; {len(exported.graph.graph.nodes)} operators"


def three_processes(step: ModuleType) -> str:
    """Export, compile and train in processes of their own; compare the losses with those of this process."""
    expected = step.train(NUM_STEPS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(step, folder, "--export", "mlp.step")
        printed = run(step, folder, "--compile", "mlp.step")
        reported = run(step, folder)
        losses = losses_in(folder)
    training = next(line for line in reported.splitlines() if line.startswith("training"))
    demand(" hit " in training, f"the third process did not find the executable: {printed.strip()}; {training}")
    difference = max(abs(one - other) / abs(one) for one, other in zip(expected, losses))
    found = f"{printed.strip()}; loaded from the cache; losses differ by {difference:.1e}"
    return demand(difference <= MOST_DIFFERENT, found)


CHECKS = (
    reaches(0, "test accuracy", at_least=0.9, measure=measured("test_accuracy")),
    holds(0, "the flags work", flags_work, slow=True),
    *chain_of_equal_losses(1, 4),
    holds(1, "padding has no gradient", padding_is_ignored),
    reaches(2, "test accuracy", at_least=0.9, measure=measured("test_accuracy")),
    holds(4, "the exported batch is recorded", batch_is_recorded),
    holds(4, "another batch is refused", batch_is_checked, slow=True),
    holds(4, "the third process trains with the executable of the second", three_processes, slow=True),
)
