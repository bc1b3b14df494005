"""A LightningModule stays as it is, and Lightning's Trainer gets the strategy of this package."""

from __future__ import annotations

from typing import Any, Tuple

import lightning.pytorch as pl
import torch

from porting.integrations.lightning import make_strategy
from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.trainers.workload import NUM_STEPS, main, make_parts


class Classifier(pl.LightningModule):
    """The perceptron with its loss and its optimizer."""

    def __init__(self, model: torch.nn.Module, criterion: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.losses: Any = []

    def training_step(self, batch: Tuple[torch.Tensor, torch.Tensor], _number: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = self.criterion(self.model(images), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return self.optimizer


def train(num_steps: int = NUM_STEPS, data: str = "") -> Losses:
    """Train `num_steps` steps and return the losses, with the accuracy of a test."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    classifier = Classifier(model, criterion, optimizer)
    quiet: Any = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    trainer = pl.Trainer(strategy=make_strategy(package="lightning.pytorch"), max_steps=num_steps, **quiet)
    trainer.fit(classifier, loader)
    return Losses(classifier.losses, test_accuracy=measure_accuracy(model, test_set))


if __name__ == "__main__":
    main(train, __doc__)
