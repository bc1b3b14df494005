"""The `Trainer` of transformers comes from this package, by its own name, for a model that returns its loss."""

from __future__ import annotations

import tempfile
from typing import Any, Dict

import torch
from torch.utils.data import default_collate
from transformers import TrainingArguments

from porting.integrations.transformers import Trainer
from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.trainers.workload import NUM_STEPS, main, make_parts


class Classifier(torch.nn.Module):
    """The perceptron in the form of the library's models: arguments by name, and the loss among the results."""

    def __init__(self, model: torch.nn.Module, criterion: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Return loss and logits."""
        logits = self.model(images)
        return {"loss": self.criterion(logits, labels), "logits": logits}


class DigitsTrainer(Trainer):
    """A trainer that keeps the order of a loader's batches, where the library's would draw another one."""

    loader: Any

    def get_train_dataloader(self) -> Any:
        """Return the loader, whose batches are by name."""
        self.loader.collate_fn = lambda rows: dict(zip(("images", "labels"), default_collate(rows)))
        return self.loader


def train(num_steps: int = NUM_STEPS, data: str = "") -> Losses:
    """Train `num_steps` steps and return the losses, with the accuracy of a test."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    with tempfile.TemporaryDirectory() as folder:
        quiet: Any = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
        arguments = TrainingArguments(
            folder, max_steps=num_steps, max_grad_norm=0.0, logging_steps=1, use_cpu=True, **quiet
        )
        trainer = DigitsTrainer(Classifier(model, criterion), arguments, optimizers=(optimizer, schedule))
        trainer.loader = loader
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return Losses(losses, test_accuracy=measure_accuracy(model, test_set))


if __name__ == "__main__":
    main(train, __doc__)
