"""The loss moves into `forward`: a call of the ported model is an optimizer step."""

from __future__ import annotations

from torch.utils.data import DataLoader

import porting
from porting.models import uresnet2d as unet
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.cosmictagger.workload import BATCH_SIZE, Settings, main, make_parts, make_schedule, validate


def train(num_steps: int, settings: Settings = Settings()) -> Losses:
    """Train with these settings; return losses and learning rates, and the trained parts."""
    train_set, model, optimizer = make_parts(settings)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE)
    scheduler = make_schedule(optimizer, loader)
    options = porting.PortOptions(micro_batch=1, accumulation=BATCH_SIZE, output_mode="all")
    ported = porting.to_ipu(model, unet.loss, label_transform=unet.chunk_planes, optimizer=optimizer, options=options)
    losses, rates = Losses(), []
    for images, labels in draw_batches(loader, num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        _logits, loss = ported(images, labels)
        losses.append(loss.mean().item())
        scheduler.step()
    return Losses(losses, rates=rates, model=model)


if __name__ == "__main__":
    main(train, validate, __doc__)
