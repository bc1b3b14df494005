"""Loaded weights compute what Chainer's definitions say, on the host and on the device, and training continues."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import torch

import porting
from porting.adapters import load_chainer_npz
from porting.data.digits import make_digits
from porting.recipe_chain import demand, equal_losses, holds, measured, reaches
from porting.recipes.from_chainer.chainer_model import PREFIX, compute_logits, make_snapshot, provide_snapshot

NUM_STEPS = 20
MAX_DIFFERENCE = 1e-4


def features_have_chainers_size(step: ModuleType) -> str:
    """Compare the size of the first linear layer with that of the snapshot."""
    expected = make_snapshot()[f"{PREFIX}fc3/W"].shape
    found = tuple(step.make_model()[8].weight.shape)
    demand(found == expected, f"the layer has the shape {found}, Chainer's {expected}")
    return f"{found[1]} features, as in the snapshot"


def every_entry_arrives(step: ModuleType) -> str:
    """Load the snapshot and count the entries that arrived."""
    sources = load_chainer_npz(provide_snapshot(), step.make_model(), names=step.MODULES)
    entries = {name[len(PREFIX) :] for name in make_snapshot() if name.startswith(PREFIX)}
    demand(set(sources.values()) == entries, f"not used: {sorted(entries - set(sources.values()))}")
    return f"{len(sources)} tensors from {len(entries)} entries"


def logits_are_equal(step: ModuleType, *, on_device: bool = False) -> str:
    """Compare the logits of other digits with those of NumPy."""
    model, images = step.make_model().eval(), make_digits(100, seed=7)[0]
    load_chainer_npz(provide_snapshot(), model, names=step.MODULES)
    predict = porting.to_ipu(model, torch.nn.CrossEntropyLoss()).inference() if on_device else model
    with torch.no_grad():
        difference = float((predict(images) - compute_logits(images, provide_snapshot())).abs().max())
    return demand(difference <= MAX_DIFFERENCE, f"largest difference {difference:.1e}")


CHECKS = (
    reaches(0, "test accuracy from random weights", at_least=0.5, measure=measured("test_accuracy", 60)),
    holds(1, "pooling leaves as many features as Chainer's", features_have_chainers_size),
    holds(2, "every entry of the model arrives", every_entry_arrives),
    reaches(2, "test accuracy after as many steps", at_least=0.9, measure=measured("test_accuracy", 60)),
    equal_losses(3, like=2),
    holds(3, "logits equal those of Chainer's definitions", logits_are_equal),
    reaches(4, "test accuracy after as many steps", at_least=0.9, measure=measured("test_accuracy", 60)),
    equal_losses(4, like=3),
    holds(4, "so do those of the device", partial(logits_are_equal, on_device=True)),
)
