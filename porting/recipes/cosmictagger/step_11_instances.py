"""Several instances train together: gradients are averaged, and one of them tells."""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from itertools import islice
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Subset

import porting
from porting.adapters import sum_over_instances
from porting.data.events import NeutrinoEvents
from porting.data.larcv import LarcvEvents
from porting.models import uresnet2d

BATCH_SIZE = 4
SMALL = dict(filters=6, depth=3, blocks_per_level=1, blocks_deepest=2, blocks_final=1, bottleneck=16)
STAGES = {"core.grow": 1}
OPTIONS = porting.PortOptions(
    micro_batch=1, accumulation=BATCH_SIZE, output_mode="all", precision="mixed", stages=STAGES
)


@dataclass(frozen=True)
class Settings:
    """What is trained on what: by default a small network on generated events, which takes seconds."""

    file: Optional[str] = None
    variant: Optional[str] = None
    downsample: int = 2
    optimizer: str = "adam"
    checkpoint: Optional[str] = None
    replicas: int = 1


class Training(NamedTuple):
    """The loss and the learning rate of each optimizer step, and what was trained."""

    losses: List[float]
    rates: List[float]
    model: Any
    events_per_second: float


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
    instance = porting.this_instance()
    torch.manual_seed(0)
    train_set, _validation_set = load_events(settings)
    model = make_model(settings, spatial_size=tuple(train_set[0][0].shape[1:]))
    optimizer = make_optimizer(settings, model)
    ported = porting.to_ipu(
        model,
        uresnet2d.loss,
        label_transform=uresnet2d.chunk_planes,
        metrics=uresnet2d.METRICS,
        optimizer=optimizer,
        options=OPTIONS.replace(replicas=settings.replicas, broadcast_buffers=settings.replicas == 1),
    )
    loader = ported.dataloader(porting.partition(train_set))
    schedule = uresnet2d.Schedule(steps_per_epoch=len(loader), peak_rate=0.01)
    scheduler = ported.scheduler(LambdaLR(optimizer, schedule))
    ported.compile(*next(iter(loader)))
    seconds: List[float] = []
    losses: List[float] = []
    rates: List[float] = []
    for images, labels in islice(batches_of(loader), num_steps):
        rates.append(ported.optimizer.param_groups[0]["lr"])
        start = time.perf_counter()
        _logits, loss, _metrics = ported(images, labels)
        seconds.append(time.perf_counter() - start)
        losses.append(sum_over_instances(loss.mean()).item() / instance.size)
        scheduler.step()
    if settings.checkpoint is not None:
        torch.save(model.state_dict(), f"{settings.checkpoint}-{instance.index}")
    speed = instance.size * settings.replicas * BATCH_SIZE / statistics.median(seconds[2:] or seconds)
    return Training(losses, rates, ported, speed)


def batches_of(loader: Any) -> Iterator[Any]:
    """Give the batches of one epoch after the other, without end."""
    while True:
        yield from loader


def validate(ported: porting.PortedModel, events: Any) -> Dict[str, float]:
    """Return the mean over `events` of each metric."""
    ported.eval()
    totals = {name: 0.0 for name in uresnet2d.METRICS}
    events = porting.partition(events)
    for images, labels in ported.dataloader(events, training=False):
        _logits, _loss, metrics = ported(images, labels)
        for name in uresnet2d.METRICS:
            totals[name] += metrics[name].sum().item() / len(events)
    ported.train()
    means = sum_over_instances(list(totals.values())) / porting.this_instance().size
    return dict(zip(totals, means.tolist()))


def small() -> Any:
    """Give the parts of a step: model, loss, a micro-batch, optimizer and options."""
    image, labels = load_events(Settings())[0][0]
    model = make_model(Settings(), spatial_size=tuple(image.shape[1:]))
    batch = image.unsqueeze(0), labels.unsqueeze(0)
    return model, uresnet2d.loss, batch, torch.optim.Adam(model.parameters(), lr=0.001), OPTIONS


def a21() -> Any:
    """Give the parts of a step of the full network with images of 640 x 1024 pixels."""
    model, config = uresnet2d.build("a21"), uresnet2d.VARIANTS["a21"]
    batch = uresnet2d.example_batch(config, batch_size=1)
    return model, uresnet2d.loss, batch, torch.optim.Adam(model.parameters(), lr=0.001), OPTIONS


def main() -> None:
    """Train with what the command line says, and print how well the network has learnt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160, help="optimizer steps (160)")
    parser.add_argument("--file", help="events in larcv's HDF5 layout (default: generated ones)")
    parser.add_argument("--variant", choices=sorted(uresnet2d.VARIANTS), help="of the network (default: a small one)")
    parser.add_argument("--downsample", type=int, default=2, help="times that a file's images are halved (2)")
    parser.add_argument("--optimizer", choices=("adam", "rmsprop"), default="adam")
    parser.add_argument("--checkpoint", help="file to save the weights in; each instance adds its number")
    parser.add_argument("--replicas", type=int, default=1, help="of each instance (1)")
    arguments = vars(parser.parse_args())
    num_steps, settings = arguments.pop("steps"), Settings(**arguments)
    training = run(num_steps, settings)
    scores = validate(training.model, load_events(settings)[1])
    if porting.this_instance().index > 0:
        return
    print(f"loss {training.losses[0]:.3f} -> {training.losses[-1]:.3f}, {training.events_per_second:.0f} events/s")
    print(", ".join(f"{name} {score:.3f}" for name, score in scores.items()))


if __name__ == "__main__":
    main()
