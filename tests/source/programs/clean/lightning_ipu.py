import poptorch
import pytorch_lightning as pl
import torch
import torchvision
import torchvision.transforms as transforms
from simple_torch_model import SimpleTorchModel
from torch import nn


class SimpleLightning(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = SimpleTorchModel()

    def training_step(self, batch, _):
        x, label = batch
        prediction = self.model(x)
        loss = torch.nn.functional.nll_loss(prediction, label)
        return loss

    def validation_step(self, batch, _):
        x, label = batch
        prediction = self.model(x)
        preds = torch.argmax(prediction, dim=1)
        acc = torch.sum(preds == label).float() / len(label)
        return acc

    def accuracy(self, preds, labels):
        return torch.sum(preds == labels).float() / len(labels)

    def validation_epoch_end(self, outputs):
        self.log("val_acc", torch.stack(outputs).mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        return optimizer


if __name__ == "__main__":
    model = SimpleLightning()
    train_set = torchvision.datasets.FashionMNIST("FashionMNIST", train=True, download=True, transform=transforms.ToTensor())
    train_loader = torch.utils.data.DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    options = poptorch.Options()
    options.deviceIterations(250)
    trainer = pl.Trainer(accelerator="ipu", devices=1, strategy=pl.strategies.IPUStrategy(training_opts=options, inference_opts=options), max_epochs=3, log_every_n_steps=1)
    trainer.fit(model, train_loader)
