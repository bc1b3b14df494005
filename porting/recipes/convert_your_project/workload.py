"""All steps share this: patterns to tell apart, the network, and how a step is started as its command line would."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Tuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

NUM_CLASSES = 6
SIDE = 8
STEPS_OF_AN_EPOCH = 20


def load_patterns() -> Tuple[TensorDataset, TensorDataset]:
    """Draw patterns with noise: 640 to train with, in 20 batches of 32, and 160 to validate with."""
    random = torch.Generator().manual_seed(0)
    patterns = torch.rand(NUM_CLASSES, 1, SIDE, SIDE, generator=random)
    labels = torch.randint(0, NUM_CLASSES, (800,), generator=random)
    images = patterns[labels] + 0.5 * torch.randn(800, 1, SIDE, SIDE, generator=random)
    return TensorDataset(images[:640], labels[:640]), TensorDataset(images[640:], labels[640:])


class Net(nn.Module):
    """A convolution and two layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Linear(8 * 16, width), nn.ReLU(), nn.Linear(width, NUM_CLASSES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a logit for each class."""
        return self.head(self.features(images).flatten(1))


class Losses(List[float]):
    """The losses of a training, one for each optimizer step, and the accuracy of the last validation."""

    def __init__(self, losses: List[float], accuracy: float) -> None:
        super().__init__(losses)
        self.measured = SimpleNamespace(accuracy=accuracy)

    def __str__(self) -> str:
        return f"loss {self[0]:.4f} -> {self[-1]:.4f}, accuracy {self.measured.accuracy:.3f}"


def run_main(main: Callable[[], Any], file: str, num_steps: int) -> Losses:
    """Call a step's `main` as its command line would, a port's where ports train; return the first losses."""
    words = ["--epochs", str(-(-num_steps // STEPS_OF_AN_EPOCH))]
    if "to_ipu" in Path(file).read_text(encoding="utf-8"):
        has_poptorch = importlib.util.find_spec("poptorch") is not None
        words += ["--device", os.environ.get("PORTING_DEVICE") or ("ipu" if has_poptorch else "sim")]
    before, environment = sys.argv, dict(os.environ)
    sys.argv = [file, *words]
    try:
        trained = main()
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(environment)
    return Losses(trained[:num_steps], trained.measured.accuracy)
