"""The small training as a LightningModule, which Lightning trains on the host."""

from __future__ import annotations

import lightning.pytorch as pl
import torchmetrics

from tests.training_loop.small_training import LOSS, accuracy, make_model, make_optimizer


class Classifier(pl.LightningModule):
    """Logs what `fit` measures, under the same names."""

    def __init__(self, *, lr=0.1, make_scheduler=None):
        super().__init__()
        self.layers = make_model()
        self.lr = lr
        self.make_scheduler = make_scheduler
        self.recall = torchmetrics.Recall(task="multiclass", num_classes=3, average="macro")
        self.rates = []
        self.epochs = []

    def training_step(self, batch, _batch_index):
        x, y = batch
        loss = LOSS(self.layers(x), y)
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _batch_index):
        x, y = batch
        output = self.layers(x)
        self.recall(output, y)
        values = {"val_loss": LOSS(output, y), "val_accuracy": accuracy(output, y), "val_recall": self.recall}
        self.log_dict(values, on_epoch=True)

    def on_train_epoch_end(self):
        self.epochs.append({name: float(value) for name, value in self.trainer.callback_metrics.items()})

    def configure_optimizers(self):
        optimizer = make_optimizer(self.layers, self.lr)
        return optimizer if self.make_scheduler is None else ([optimizer], [self.make_scheduler(optimizer)])


def train_by_lightning(loader, epochs, *, validation=None, callbacks=(), **settings):
    """Train and return the module, with what it has logged."""
    module = Classifier(**settings)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=list(callbacks),
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=any(isinstance(each, pl.callbacks.ModelCheckpoint) for each in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader, validation)
    return module
