"""Semantic segmentation of street scenes with a module of Lightning."""
from argparse import ArgumentParser

import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassJaccardIndex

from scenes import SceneDataset, make_transforms


class DoubleConv(nn.Module):
    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(in_ch, out_ch, 3, padding=1), nn.BatchNorm2d(out_ch), nn.ReLU(inplace=True),
            nn.Conv2d(out_ch, out_ch, 3, padding=1), nn.BatchNorm2d(out_ch), nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self, num_classes, features=32, depth=3):
        super().__init__()
        self.down = nn.ModuleList()
        self.up = []  # finds: C003
        channels = 3
        for i in range(depth):
            self.down.append(DoubleConv(channels, features * 2**i))
            channels = features * 2**i
        for i in reversed(range(depth - 1)):
            self.up.append(DoubleConv(channels + features * 2**i, features * 2**i))
            channels = features * 2**i
        self.head = nn.Conv2d(channels, num_classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        skips = []
        for layer in self.down[:-1]:
            x = layer(x)
            skips.append(x)
            x = self.pool(x)
        x = self.down[-1](x)
        for layer, skip in zip(self.up, reversed(skips)):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            if x.shape[2:] != skip.shape[2:]:
                x = F.interpolate(x, size=skip.shape[2:])
            x = layer(torch.cat([skip, x], dim=1))
        return self.head(x)


class DiceLoss(nn.Module):
    def __init__(self, ignore_index=255):
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, logits, target):
        valid = target != self.ignore_index
        probs = logits.softmax(1).permute(0, 2, 3, 1)[valid]  # finds: C002
        onehot = F.one_hot(target[valid], logits.shape[1]).float()  # finds: C002
        inter = (probs * onehot).sum(0)
        dice = (2 * inter + 1) / (probs.sum(0) + onehot.sum(0) + 1)
        return 1 - dice.mean()


class SegmentationModule(pl.LightningModule):
    def __init__(self, num_classes=19, lr=1e-3, dice_weight=0.5, warmup=500):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet(num_classes)
        self.dice = DiceLoss()
        self.iou = MulticlassJaccardIndex(num_classes, ignore_index=255)

    def forward(self, x):
        return self.net(x)

    def _loss(self, batch):
        img, mask = batch
        logits = self(img)
        ce = F.cross_entropy(logits, mask.long(), ignore_index=255)
        return logits, ce + self.hparams.dice_weight * self.dice(logits, mask)

    def training_step(self, batch, batch_idx):
        _, loss = self._loss(batch)
        self.log("train/loss", loss, on_step=True)
        self.log("train/ppl", torch.exp(loss).item())  # finds: D020
        return loss

    def validation_step(self, batch, batch_idx):
        logits, loss = self._loss(batch)
        self.iou(logits.argmax(1), batch[1])
        self.log("val/loss", loss)
        self.log("val/iou", self.iou, on_epoch=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / self.hparams.warmup))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    parser = ArgumentParser()
    parser.add_argument("--root", default="data/scenes")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=2)
    args = parser.parse_args()
    train_set = SceneDataset(args.root, "train", make_transforms(train=True))
    val_set = SceneDataset(args.root, "val", make_transforms(train=False))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=8, pin_memory=True)  # finds: B010
    val_loader = DataLoader(val_set, args.batch_size, num_workers=8)  # finds: B010
    trainer = pl.Trainer(
        accelerator="cuda",  # finds: D013
        devices=args.gpus,
        strategy="ddp",
        precision="16-mixed",  # finds: P013
        sync_batchnorm=True,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(monitor="val/iou", mode="max"), LearningRateMonitor()],
        max_epochs=60,
    )
    trainer.fit(SegmentationModule(), train_loader, val_loader)


if __name__ == "__main__":
    main()
