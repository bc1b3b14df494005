"""All steps share this: events, the network, its optimizer and its scores, and the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Type

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Subset

import porting
from porting.data.events import NeutrinoEvents
from porting.data.larcv import LarcvEvents
from porting.models import uresnet2d
from porting.recipe_chain import Losses

BATCH_SIZE = 4
SMALL = dict(filters=6, depth=3, blocks_per_level=1, blocks_deepest=2, blocks_final=1, bottleneck=16)


def option(default: object, **words: Any) -> Any:
    """Make a setting with its default value, and its help on the command line."""
    return field(default=default, metadata=words)


@dataclass(frozen=True)
class Settings:
    """The network and its data: by default a small network on generated events, which trains in seconds."""

    file: Optional[str] = option(None, help="events in larcv's HDF5 layout (default: generated ones)")
    variant: Optional[str] = option(
        None, choices=sorted(uresnet2d.VARIANTS), help="of the network (default: a small one)"
    )
    downsample: int = option(2, type=int, help="times that a file's images are halved (2)")
    optimizer: str = option("adam", choices=("adam", "rmsprop"))
    checkpoint: Optional[str] = option(
        None, help="file to save the weights in; each of several instances adds its number"
    )


def make_parts(settings: Settings) -> Tuple[Any, nn.Module, torch.optim.Optimizer]:
    """Load the events to train with; make the network and its optimizer, always from the same seed."""
    torch.manual_seed(0)
    train_set, _validation_set = load_events(settings)
    model = make_model(settings, spatial_size=tuple(train_set[0][0].shape[1:]))
    return train_set, model, make_optimizer(settings, model)


def load_events(settings: Settings) -> Tuple[Any, Any]:
    """Generate events to train and to validate with, or read those of a larcv file and keep the last for validation."""
    if settings.file is None:
        return NeutrinoEvents(32, height=64, width=96, seed=0), NeutrinoEvents(4, height=64, width=96, seed=1)
    events = LarcvEvents(settings.file, downsample=settings.downsample)
    num_train = (len(events) - 1) // BATCH_SIZE * BATCH_SIZE
    return Subset(events, range(num_train)), Subset(events, range(num_train, len(events)))


def make_model(settings: Settings, spatial_size: Tuple[int, int]) -> nn.Module:
    """Make a variant of the network; by default a small one with all parts of the others."""
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


def make_schedule(optimizer: torch.optim.Optimizer, loader: torch.utils.data.DataLoader) -> LambdaLR:
    """Make the schedule of the learning rate, whose warm-up is an epoch; the full network has a lower peak."""
    return LambdaLR(optimizer, uresnet2d.Schedule(steps_per_epoch=len(loader), peak_rate=0.01))


def validate(model: porting.PortedModel, events: torch.utils.data.Dataset) -> Dict[str, float]:
    """Return the mean over `events` of each metric; a ported model computes them on its device, in its own executor."""
    model.eval()
    if isinstance(model, porting.PortedModel):
        metrics = [model(images, labels)[-1] for images, labels in model.dataloader(events, training=False)]
    else:
        metrics = []
        for images, labels in DataLoader(events, batch_size=1):
            with torch.no_grad():
                logits, planes = model(images), uresnet2d.chunk_planes(labels)
                metrics.append({name: metric(logits, planes) for name, metric in uresnet2d.METRICS.items()})
    model.train()
    names = uresnet2d.METRICS
    return {name: torch.cat([values[name].flatten() for values in metrics]).mean().item() for name in names}


def look_at_memory(parts: Any) -> Any:
    """Estimate the memory of a step, whose model, loss, micro-batch, optimizer and options are given."""
    model, loss, batch, optimizer, options = parts
    ported = porting.to_ipu(model, loss, optimizer=optimizer, options=options)
    return porting.memory_report(ported, tuple(part.repeat(options.samples_per_call, 1, 1, 1) for part in batch))


def make_targets(options: porting.PortOptions) -> Tuple[Callable[[], Any], Callable[[], Any]]:
    """Make two functions for commands that look at a step: of the small network, and of the full one.

    Each gives the parts of a step: model, loss, a micro-batch, optimizer and `options`.
    """

    def small() -> Any:
        train_set, model, _optimizer = make_parts(Settings())
        return parts_of(model, [part.unsqueeze(0) for part in train_set[0]])

    def a21() -> Any:
        config = uresnet2d.VARIANTS["a21"]
        return parts_of(uresnet2d.build("a21"), uresnet2d.example_batch(config, batch_size=1))

    def parts_of(model: nn.Module, batch: Sequence[torch.Tensor]) -> Any:
        return model, uresnet2d.loss, batch, torch.optim.Adam(model.parameters(), lr=0.001), options

    return small, a21


def make_parser(description: Optional[str], settings_type: Type[Settings]) -> argparse.ArgumentParser:
    """Make the parser of a command line with the settings of a program, and the number of steps."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=160, help="optimizer steps (160)")
    for setting in fields(settings_type):
        parser.add_argument(f"--{setting.name}", default=setting.default, **setting.metadata)
    return parser


def main(
    train: Callable[..., Losses],
    validate: Callable[..., Dict[str, float]],
    description: Optional[str],
    settings_type: Type[Settings] = Settings,
    *,
    instance: Optional[int] = None,
) -> None:
    """Train as the command line says, save the weights, and print how well the network has learnt.

    Of several instances each saves in a file that ends in its number, and the first one prints.
    """
    arguments = vars(make_parser(description, settings_type).parse_args())
    num_steps, settings = arguments.pop("steps"), settings_type(**arguments)
    losses = train(num_steps, settings)
    measured = losses.measured
    scores = validate(measured.model, load_events(settings)[1])
    if settings.checkpoint is not None:
        torch.save(measured.model.state_dict(), settings.checkpoint + ("" if instance is None else f"-{instance}"))
    if not instance:
        speed = f", {measured.events_per_second:.0f} events/s" if hasattr(measured, "events_per_second") else ""
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}{speed}")
        print(", ".join(f"{name} {score:.3f}" for name, score in scores.items()))
