"""LightningModules as people publish them, for either of the two packages of Lightning."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_loader(rows=64, batch_size=16, shuffle=False):
    """Images of 6 x 6 pixels, of 3 classes."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(rows, 1, 6, 6, generator=generator), torch.randint(3, (rows,), generator=generator)
    order = torch.Generator().manual_seed(2)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=shuffle, generator=order)


class Recorded:
    """Keeps the losses of its steps."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def record(self, loss):
        self.losses.append(loss.item())
        return loss


class Classifier(Recorded):
    """Layers in `forward`, a schedule for each epoch, metrics that are modules, and two logs."""

    def __init__(self, width=8, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(64, width)
        self.out = nn.Linear(width, 3)
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.norm(self.conv(x))), 1).flatten(1)
        return F.log_softmax(self.out(F.relu(self.hidden(h))), dim=1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.nll_loss(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return self.record(loss)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.accuracy.update(logits, y)
        self.log("val_loss", F.nll_loss(logits, y), prog_bar=True)
        self.log("val_acc", self.accuracy)

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).argmax(dim=1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)]


class AutoEncoder(Recorded):
    """The one of Lightning's first page: `forward` embeds, the step calls its parts."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 36))

    def forward(self, x):
        return self.encoder(x.view(x.size(0), -1))

    def training_step(self, batch, batch_idx):
        x, _y = batch
        x = x.view(x.size(0), -1)
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return {"loss": self.record(loss)}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Gan(Recorded):
    """Two optimizers in manual optimization, with parts frozen in turn."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 36), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Linear(36, 16), nn.LeakyReLU(), nn.Linear(16, 1))

    def forward(self, z):
        return self.generator(z)

    def training_step(self, batch):
        real = batch[0].flatten(1)
        g_opt, d_opt = self.optimizers()
        z = torch.randn(len(real), 4)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        self.toggle_optimizer(g_opt)
        g_loss = F.binary_cross_entropy_with_logits(self.discriminator(self(z)), ones)
        self.manual_backward(g_loss)
        self.clip_gradients(g_opt, gradient_clip_val=0.5)
        g_opt.step()
        g_opt.zero_grad()
        self.untoggle_optimizer(g_opt)
        self.toggle_optimizer(d_opt)
        fake = F.binary_cross_entropy_with_logits(self.discriminator(self(z).detach()), zeros)
        d_loss = (F.binary_cross_entropy_with_logits(self.discriminator(real), ones) + fake) / 2
        self.manual_backward(d_loss)
        d_opt.step()
        d_opt.zero_grad()
        self.untoggle_optimizer(d_opt)
        self.log_dict({"g_loss": self.record(g_loss), "d_loss": self.record(d_loss)}, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.generator.parameters(), lr=2e-3), torch.optim.Adam(
            self.discriminator.parameters(), lr=2e-3
        )


class Tuned(Recorded):
    """A frozen backbone, groups of parameters, a schedule by the step, and LBFGS-free arithmetic on gradients."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(OrderedDict(flat=nn.Flatten(), layer=nn.Linear(36, 16), act=nn.GELU()))
        self.backbone.requires_grad_(False)
        self.heads = nn.ModuleList([nn.Linear(16, 3), nn.Linear(16, 1)])
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        features = self.backbone(x)
        loss = self.criterion(self.heads[0](features), y) + self.heads[1](features).square().mean()
        return self.record(loss)

    def on_before_optimizer_step(self, optimizer):
        self.log("grad_norm", sum(p.grad.norm() for p in self.heads.parameters()))

    def configure_optimizers(self):
        groups = [{"params": self.heads[0].parameters()}, {"params": self.heads[1].parameters(), "lr": 0.01}]
        optimizer = torch.optim.NAdam(groups, lr=0.02)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=40)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Noisy(Recorded):
    """Dropout in two forms, a sample of a distribution, and a norm that counts its calls in buffers."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(), nn.Flatten(), nn.ReLU())
        self.mean, self.spread = nn.Linear(64, 4), nn.Linear(64, 4)
        self.decoder = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 36))

    def forward(self, x):
        h = F.dropout(self.encoder(x), 0.1, training=self.training)
        mean, spread = self.mean(h), self.spread(h).exp()
        return self.decoder(mean + spread * torch.randn_like(mean))

    def training_step(self, batch, batch_idx):
        return self.record(F.mse_loss(self(batch[0]), batch[0].flatten(1)))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2, fused=True)


class Wasserstein(Recorded):
    """A critic whose weights are clamped behind torch's back."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 36), nn.Linear(36, 1)

    def training_step(self, batch):
        critic, generator = self.optimizers()
        z = torch.randn(len(batch[0]), 4)
        for optimizer, sign in ((critic, 1), (generator, -1)):
            loss = sign * (self.critic(self.generator(z)).mean() - self.critic(batch[0].flatten(1)).mean())
            self.record(loss)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            for parameter in self.critic.parameters():
                parameter.data.clamp_(-0.01, 0.01)

    def configure_optimizers(self):
        return [torch.optim.RMSprop(part.parameters(), lr=5e-3) for part in (self.critic, self.generator)]


def make_modules(package: str) -> Any:
    """Return the classes above by name, made LightningModules of the package."""
    base = importlib.import_module(package).LightningModule
    kinds = (Classifier, AutoEncoder, Gan, Tuned, Noisy, Wasserstein)
    return {kind.__name__: type(kind.__name__, (kind, base), {}) for kind in kinds}
