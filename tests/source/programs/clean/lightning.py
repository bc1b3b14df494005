import poptorch
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import IPUStrategy
from torch import nn


class Classifier(pl.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch, _):
        x, label = batch
        return self.loss(self.model(x), label)

    def validation_step(self, batch, _):
        x, label = batch
        return (self.model(x).argmax(-1) == label).float().mean()

    def validation_epoch_end(self, outputs):
        self.log("val_acc", torch.stack(outputs).mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


if __name__ == "__main__":
    options = poptorch.Options()
    options.deviceIterations(250)
    options.replicationFactor(2)
    trainer = pl.Trainer(
        max_epochs=2, strategy=IPUStrategy(autoreport=True, training_opts=options), accelerator="ipu", devices=2
    )
    trainer.fit(Classifier())
