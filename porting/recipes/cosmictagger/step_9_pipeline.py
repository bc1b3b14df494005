"""The decoder of the highest level, by its name, begins on a second IPU: this is a pipeline."""

from __future__ import annotations

import porting
from porting.models import uresnet2d as unet
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.cosmictagger import workload
from porting.recipes.cosmictagger.workload import BATCH_SIZE, Settings, main, make_parts, make_schedule, validate

OPTIONS = porting.PortOptions(
    micro_batch=1, accumulation=BATCH_SIZE, output_mode="all", precision="mixed", stages={"core.grow": 1}
)
small, a21 = workload.make_targets(OPTIONS)


def train(num_steps: int, settings: Settings = Settings()) -> Losses:
    """Train with these settings; return losses and learning rates, and the trained parts."""
    train_set, model, optimizer = make_parts(settings)
    ported = porting.to_ipu(
        model, unet.loss, label_transform=unet.chunk_planes, metrics=unet.METRICS, optimizer=optimizer, options=OPTIONS
    )
    loader = ported.dataloader(train_set)
    scheduler = ported.scheduler(make_schedule(optimizer, loader))
    print(f"compiled in {ported.compile(*next(iter(loader))):.1f} s")
    losses, rates = Losses(), []
    for images, labels in draw_batches(loader, num_steps):
        rates.append(ported.optimizer.param_groups[0]["lr"])
        _logits, loss, _metrics = ported(images, labels)
        losses.append(loss.mean().item())
        scheduler.step()
    return Losses(losses, rates=rates, model=ported)


if __name__ == "__main__":
    main(train, validate, __doc__)
