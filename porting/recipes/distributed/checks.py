"""Losses stay those of one process with a large batch, however many replicas and processes share it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Dict

import torch

import porting
from porting.models import mlp
from porting.recipe_chain import chain_of_equal_losses, demand, holds, reaches, run_program
from porting.recipes.distributed import workload

NUM_STEPS = 12

LAUNCHERS = {
    "porting run": ["-m", "porting", "run", "--num-instances", "2"],
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
}


def accuracy(step: ModuleType) -> float:
    """Train as the program does and return the share of test images recognised."""
    measured = step.train(160).measured
    return float(measured.num_recognised / measured.num_tested)


def shares_are_one_batch(step: ModuleType) -> str:
    """Put the shares of two instances together and compare them with the batches of one process."""
    images = range(11)
    for epoch in (0, 1):
        shares: Any = [porting.partition(images, index, 2, shuffle=True) for index in (0, 1)]
        one: Any = porting.partition(images, 0, 1, shuffle=True)
        for share in (*shares, one):
            share.set_epoch(epoch)
        together = [image for pair in zip(*shares) for image in pair]
        demand(together[:11] == list(one) and together[11:] == list(one)[:1], f"epoch {epoch}: {together}")
    return "11 images: 6 for each, one of them twice; each epoch has an order of its own"


def instances_train_as_one(step: Any) -> str:
    """Train in two processes of each launcher and compare losses and weights with those of a large batch."""
    with tempfile.TemporaryDirectory() as folder:
        plain = str(Path(step.__file__).with_name("step_0_plain.py"))
        run_program(plain, "--steps", "8", "--checkpoint", f"{folder}/alone")
        alone = torch.load(f"{folder}/alone")
        worst = 0.0
        for name, launcher in LAUNCHERS.items():
            said = run_program(*launcher, step.__file__, "--steps", "8", "--checkpoint", f"{folder}/{name}")
            demand(said.count("loss ") == 1, f"{name}: {said}")
            found = [torch.load(f"{folder}/{name}-{index}") for index in (0, 1)]
            distances = [_distance(one, alone) for one in found]
            demand(max(distances) < 1e-5, f"{name}: {max(distances):.1e} from plain PyTorch")
            demand(_distance(found[0], found[1]) == 0, f"{name}: the instances have different weights")
            worst = max(worst, *distances)
    return f"under {' and '.join(LAUNCHERS)} losses and weights are within {worst:.0e} of step 0's; one instance tells"


def every_image_counts_once(step: Any) -> str:
    """Test with padding in one process, and in two, and without padding."""
    alone = step.train(4).measured
    demand(alone.num_tested == 500, f"{alone.num_tested} images in one process")
    with tempfile.TemporaryDirectory() as folder:
        run_program(*LAUNCHERS["porting run"], step.__file__, "--steps", "4", "--checkpoint", f"{folder}/two")
        found = [torch.load(f"{folder}/two-{index}") for index in (0, 1)]
    counts = [(one["num_recognised"], one["num_tested"]) for one in found]
    demand(counts == 2 * [(alone.num_recognised, alone.num_tested)], f"{counts} in two processes")
    return f"{alone.num_recognised} of {alone.num_tested}, in one process and in both of two"


def counts_are_those_without_padding(step: ModuleType) -> str:
    """Compare the counts of the padded test with those of the whole test set at once."""
    measured = step.train(NUM_STEPS).measured
    images, labels = workload.load_images(500, seed=1).tensors
    model = mlp.build("mnist_small")
    model.load_state_dict(measured.weights)
    num_recognised = int((model(images).argmax(dim=1) == labels).sum())
    found = measured.num_recognised, measured.num_tested
    demand(found == (num_recognised, 500), f"{found} instead of {(num_recognised, 500)}")
    return f"{num_recognised} of 500, with and without padding"


def _distance(one: Dict[str, Any], other: Dict[str, Any]) -> float:
    """Return the largest difference of losses and of weights, each relative to the largest number."""
    losses = torch.tensor(one["losses"]), torch.tensor(other["losses"])
    pairs = [losses, *((one["weights"][name], weight) for name, weight in other["weights"].items())]
    return max(float((mine - theirs).abs().max() / theirs.abs().max()) for mine, theirs in pairs)


CHECKS = (
    reaches(0, "test accuracy", at_least=0.85, measure=accuracy),
    *chain_of_equal_losses(1, 4),
    holds(3, "shares of two instances are the batches of one", shares_are_one_batch),
    holds(3, "two processes train as one with a large batch", instances_train_as_one, slow=True),
    holds(4, "padding counts nowhere", counts_are_those_without_padding),
    holds(4, "two processes test as one", every_image_counts_once, slow=True),
    reaches(5, "loss after 40 steps", at_most=0.5, measure=lambda step: step.train(40)[-1]),
)
