"""A UResNet tells neutrinos from cosmic rays, in plain PyTorch on the CPU."""

from __future__ import annotations

from torch.utils.data import DataLoader

from porting.models import uresnet2d as unet
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.cosmictagger.workload import BATCH_SIZE, Settings, main, make_parts, make_schedule, validate


def train(num_steps: int, settings: Settings = Settings()) -> Losses:
    """Train with these settings; return losses and learning rates, and the trained parts."""
    train_set, model, optimizer = make_parts(settings)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE)
    scheduler = make_schedule(optimizer, loader)
    losses, rates = Losses(), []
    for images, labels in draw_batches(loader, num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss = unet.loss(model(images), unet.chunk_planes(labels))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        scheduler.step()
    return Losses(losses, rates=rates, model=model)


if __name__ == "__main__":
    main(train, validate, __doc__)
