"""A training in which everything draws random numbers; as a program it can be killed and started again.

`python resumed_training.py FOLDER LOG [SETTING=VALUE ...]` adds a line to LOG for each call: its step and the bits of
its loss.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from porting import FixedBatchDataset, PortOptions, fit, partition, to_ipu

NUM_EPOCHS = 3


class ChangedSamples(Dataset):
    """Samples with noise from every stream of the host, and from a generator of the dataset's own."""

    def __init__(self, num_samples: int = 22) -> None:
        drawn = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(num_samples, 4, generator=drawn)
        self.labels = torch.randint(3, (num_samples,), generator=drawn)
        self.noise = numpy.random.default_rng(5)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        noise = torch.randn(4) + random.random() + float(numpy.random.rand()) + self.noise.random()
        return self.inputs[index] + 0.1 * noise.float(), self.labels[index]


def make_port(dropout: float = 0.5, **options: Any) -> Tuple[Any, Any]:
    """Port a model with BatchNorm and Dropout; return it with its connected scheduler."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = {"micro_batch": 4, **options}
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options))
    return ported, ported.scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9))


def make_loader(ported: Any, kind: str) -> Tuple[Any, Callable[[int, float], Any]]:
    """Make one of several kinds of loaders, with what is to be done behind each of its epochs."""
    calls = ported.options.samples_per_call
    data: Any = FixedBatchDataset(ChangedSamples(), calls)
    if kind == "shares":
        share = partition(data, 0, 1, shuffle=True)
        return ported.dataloader(share), lambda epoch, _loss: share.set_epoch(epoch)
    if kind == "persistent workers":
        # what such processes draw themselves no checkpoint knows
        data = TensorDataset(data.dataset.inputs, data.dataset.labels)
    settings: Dict[str, Dict[str, Any]] = {
        "shuffled": {},
        "own generator": {"generator": torch.Generator().manual_seed(4)},
        "workers": {"num_workers": 2},
        "persistent workers": {"num_workers": 1, "persistent_workers": True},
    }
    source = DataLoader(data, batch_size=4, shuffle=True, **settings[kind])
    return ported.dataloader(source), lambda _epoch, _loss: None


def train(
    folder: Any,
    *,
    kind: str = "shuffled",
    stop_behind: Optional[int] = None,
    on_loss: Callable[[int, float], Any] = lambda step, loss: None,
    every: Optional[int] = 1,
    keep: int = 5,
    resume: bool = True,
    **options: Any,
) -> List[Tuple[int, str]]:
    """Train with checkpoints and return the steps with the bits of their losses; Ctrl-C comes `stop_behind` a step."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    ported, scheduler = make_port(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BatchNorm sees the padding
        loader, after_epoch = make_loader(ported, kind)
    losses: List[Tuple[int, str]] = []

    def after_call(returned: Any) -> None:
        scheduler.step()
        losses.append((ported.port_optimizer.num_steps, returned[1].mean().item().hex()))
        on_loss(*losses[-1])
        if stop_behind is not None and losses[-1][0] >= stop_behind:
            raise KeyboardInterrupt

    settings = {"checkpoint": folder, "every": every, "keep": keep, "resume": resume}
    try:
        fit(ported, loader, NUM_EPOCHS, progress=False, after_call=after_call, after_epoch=after_epoch, **settings)
    except KeyboardInterrupt:
        pass
    return losses


def main() -> None:
    """Train, slowly enough to be killed in between, and write each loss down."""
    folder, log, *settings = sys.argv[1:]
    with open(log, "a") as file:

        def write(step: int, loss: str) -> None:
            file.write(f"{step} {loss}\n")
            file.flush()
            time.sleep(0.02)

        train(folder, on_loss=write, **dict(setting.split("=") for setting in settings))


if __name__ == "__main__":
    main()
