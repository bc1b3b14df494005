"""Several instances train together: gradients are averaged, and one instance prints."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any, Dict

import porting
from porting.adapters import sum_over_instances
from porting.models import uresnet2d as unet
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.cosmictagger import workload
from porting.recipes.cosmictagger.workload import BATCH_SIZE, main, make_parts, make_schedule

OPTIONS = porting.PortOptions(
    micro_batch=1, accumulation=BATCH_SIZE, output_mode="all", precision="mixed", stages={"core.grow": 1}
)
small, a21 = workload.make_targets(OPTIONS)


@dataclass(frozen=True)
class Settings(workload.Settings):
    """The settings of all steps, and the replicas of each instance."""

    replicas: int = workload.option(1, type=int, help="of each instance (1)")


def train(num_steps: int, settings: Settings = Settings()) -> Losses:
    """Train with these settings; return losses and learning rates, and the trained parts."""
    instance = porting.this_instance()
    train_set, model, optimizer = make_parts(settings)
    options = OPTIONS.replace(replicas=settings.replicas, broadcast_buffers=settings.replicas == 1)
    ported = porting.to_ipu(
        model, unet.loss, label_transform=unet.chunk_planes, metrics=unet.METRICS, optimizer=optimizer, options=options
    )
    loader = ported.dataloader(porting.partition(train_set))
    scheduler = ported.scheduler(make_schedule(optimizer, loader))
    ported.compile(*next(iter(loader)))
    losses, rates, seconds = Losses(), [], []
    for images, labels in draw_batches(loader, num_steps):
        rates.append(ported.optimizer.param_groups[0]["lr"])
        start = time.perf_counter()
        _logits, loss, _metrics = ported(images, labels)
        seconds.append(time.perf_counter() - start)
        losses.append(sum_over_instances(loss.mean()).item() / instance.size)
        scheduler.step()
    speed = instance.size * settings.replicas * BATCH_SIZE / statistics.median(seconds[2:] or seconds)
    return Losses(losses, rates=rates, model=ported, events_per_second=speed)


def validate(ported: porting.PortedModel, events: Any) -> Dict[str, float]:
    """Return the mean over `events` of each metric."""
    share = workload.validate(ported, porting.partition(events))
    return dict(zip(share, (sum_over_instances(list(share.values())) / porting.this_instance().size).tolist()))


if __name__ == "__main__":
    main(train, validate, __doc__, Settings, instance=porting.this_instance().index)
