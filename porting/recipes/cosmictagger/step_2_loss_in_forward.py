"""The loss moves into `forward`: a call of the ported model is an optimizer step."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import islice
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Subset

import porting
from porting.data.events import NeutrinoEvents
from porting.data.larcv import LarcvEvents
from porting.models import uresnet2d

BATCH_SIZE = 4
SMALL = dict(filters=6, depth=3, blocks_per_level=1, blocks_deepest=2, blocks_final=1, bottleneck=16)


@dataclass(frozen=True)
class Settings:
    """What is trained on what: by default a small network on generated events, which takes seconds."""

    file: Optional[str] = None
    variant: Optional[str] = None
    downsample: int = 2
    optimizer: str = "adam"
    checkpoint: Optional[str] = None


class Training(NamedTuple):
    """The loss and the learning rate of each optimizer step, and what was trained."""

    losses: List[float]
    rates: List[float]
    model: Any


def load_events(settings: Settings) -> Tuple[Any, Any]:
    """Generate events to train and to validate with, or read those of a larcv file and keep the last for validation."""
    if settings.file is None:
        return NeutrinoEvents(32, height=64, width=96, seed=0), NeutrinoEvents(4, height=64, width=96, seed=1)
    events = LarcvEvents(settings.file, downsample=settings.downsample)
    num_train = (len(events) - 1) // BATCH_SIZE * BATCH_SIZE
    return Subset(events, range(num_train)), Subset(events, range(num_train, len(events)))


def make_model(settings: Settings, spatial_size: Tuple[int, int]) -> nn.Module:
    """Make a variant of the network; by default a small one that has all parts of the others."""
    if settings.variant is None:
        return uresnet2d.build("a21", spatial_size=spatial_size, **SMALL)
    # what is halved too often to be halved as often again loses levels
    depth = min(uresnet2d.VARIANTS[settings.variant].depth, 7 - settings.downsample)
    return uresnet2d.build(settings.variant, depth=depth, spatial_size=spatial_size)


def make_optimizer(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    """Make the configured optimizer; its learning rate is 1, for the schedule gives absolute ones."""
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(model.parameters(), lr=1.0, eps=1e-4)
    return torch.optim.Adam(model.parameters(), lr=1.0)


def train(num_steps: int) -> List[float]:
    """Train for `num_steps` optimizer steps and return their losses."""
    return run(num_steps).losses


def run(num_steps: int, settings: Settings = Settings()) -> Training:
    """Train as `train` does, on what the settings say, and save the weights."""
    torch.manual_seed(0)
    train_set, _validation_set = load_events(settings)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE)
    model = make_model(settings, spatial_size=tuple(train_set[0][0].shape[1:]))
    optimizer = make_optimizer(settings, model)
    scheduler = LambdaLR(optimizer, uresnet2d.Schedule(steps_per_epoch=len(loader), peak_rate=0.01))
    options = porting.PortOptions(micro_batch=1, accumulation=BATCH_SIZE, output_mode="all")
    ported = porting.to_ipu(
        model, uresnet2d.loss, label_transform=uresnet2d.chunk_planes, optimizer=optimizer, options=options
    )
    losses: List[float] = []
    rates: List[float] = []
    for images, labels in islice(batches_of(loader), num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        _logits, loss = ported(images, labels)
        losses.append(loss.mean().item())
        scheduler.step()
    if settings.checkpoint is not None:
        torch.save(model.state_dict(), settings.checkpoint)
    return Training(losses, rates, model)


def batches_of(loader: Any) -> Iterator[Any]:
    """Give the batches of one epoch after the other, without end."""
    while True:
        yield from loader


def validate(model: nn.Module, events: Any) -> Dict[str, float]:
    """Return the mean over `events` of each metric."""
    model.eval()
    totals = {name: 0.0 for name in uresnet2d.METRICS}
    with torch.no_grad():
        for images, labels in DataLoader(events, batch_size=1):
            logits, planes = model(images), uresnet2d.chunk_planes(labels)
            for name, metric in uresnet2d.METRICS.items():
                totals[name] += metric(logits, planes).item() / len(events)
    model.train()
    return totals


def main() -> None:
    """Train with what the command line says, and print how well the network has learnt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160, help="optimizer steps (160)")
    parser.add_argument("--file", help="events in larcv's HDF5 layout (default: generated ones)")
    parser.add_argument("--variant", choices=sorted(uresnet2d.VARIANTS), help="of the network (default: a small one)")
    parser.add_argument("--downsample", type=int, default=2, help="times that a file's images are halved (2)")
    parser.add_argument("--optimizer", choices=("adam", "rmsprop"), default="adam")
    parser.add_argument("--checkpoint", help="file to save the weights in")
    arguments = vars(parser.parse_args())
    num_steps, settings = arguments.pop("steps"), Settings(**arguments)
    training = run(num_steps, settings)
    scores = validate(training.model, load_events(settings)[1])
    print(f"loss {training.losses[0]:.3f} -> {training.losses[-1]:.3f}")
    print(", ".join(f"{name} {score:.3f}" for name, score in scores.items()))


if __name__ == "__main__":
    main()
