"""Self-supervised pre-training with a momentum encoder, in Lightning."""
import copy
import math

import lightning as L
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms as T

from lightning.pytorch.cli import LightningCLI


class TwoViews:
    def __init__(self, transform):
        self.transform = transform

    def __call__(self, img):
        return self.transform(img), self.transform(img)


class PretrainData(L.LightningDataModule):
    def __init__(self, data_dir="./data", batch_size=256):
        super().__init__()
        self.save_hyperparameters()

    def prepare_data(self):
        torchvision.datasets.CIFAR10(self.hparams.data_dir, download=True)

    def setup(self, stage=None):
        augment = T.Compose([
            T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.ToTensor(),
        ])
        self.train_set = torchvision.datasets.CIFAR10(self.hparams.data_dir, transform=TwoViews(augment))

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)  # finds: B014, B017


class MoCo(L.LightningModule):
    def __init__(self, dim=128, queue_size=4096, momentum=0.996, temperature=0.2, lr=0.06, max_steps=10000):
        super().__init__()
        self.save_hyperparameters()
        backbone = torchvision.models.resnet18(num_classes=dim)
        self.encoder_q = backbone
        self.encoder_k = copy.deepcopy(backbone)
        for p in self.encoder_k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue_size), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update(self):
        m = 1 - (1 - self.hparams.momentum) * (math.cos(math.pi * self.global_step / self.hparams.max_steps) + 1) / 2
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * m + q.data * (1 - m)  # finds: D020

    @torch.no_grad()
    def _enqueue(self, keys):
        ptr = int(self.queue_ptr)
        n = keys.shape[0]
        self.queue[:, ptr : ptr + n] = keys.T
        self.queue_ptr[0] = (ptr + n) % self.hparams.queue_size

    def forward(self, x):
        return F.normalize(self.encoder_q(x), dim=1)

    def training_step(self, batch, batch_idx):
        (view_q, view_k), _ = batch
        q = self(view_q)
        self._momentum_update()
        with torch.no_grad():
            shuffle = torch.randperm(view_k.shape[0], device=view_k.device)
            k = F.normalize(self.encoder_k(view_k[shuffle]), dim=1)
            k = k[torch.argsort(shuffle)]
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().detach()
        logits = torch.cat([pos, neg], dim=1) / self.hparams.temperature
        labels = torch.zeros(logits.shape[0], dtype=torch.long, device=self.device)
        loss = F.cross_entropy(logits, labels)
        self._enqueue(k)
        self.log_dict({"loss": loss, "pos": pos.mean()}, prog_bar=True)
        if batch_idx % 100 == 0:
            print("step", self.global_step, loss.item())
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.encoder_q.parameters(), self.hparams.lr, momentum=0.9, weight_decay=1e-4)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.hparams.max_steps)]


class LinearProbe(L.LightningModule):
    def __init__(self, encoder, num_classes=10):
        super().__init__()
        self.encoder = encoder
        self.fc = nn.LazyLinear(num_classes)

    def training_step(self, batch, batch_idx):
        x, y = batch
        with torch.no_grad():
            features = self.encoder(x)
        loss = F.cross_entropy(self.fc(features), y)
        self.log("probe", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.fc.parameters(), lr=0.1)  # finds: O001


if __name__ == "__main__":
    data = PretrainData()
    moco = MoCo()
    trainer = L.Trainer(max_steps=10000, accelerator="auto", log_every_n_steps=50)
    trainer.fit(moco, data)
    probe = LinearProbe(moco.encoder_q)
    L.Trainer(max_epochs=5).fit(probe, DataLoader(torchvision.datasets.CIFAR10("./data", transform=T.ToTensor()), 256))  # finds: B010
