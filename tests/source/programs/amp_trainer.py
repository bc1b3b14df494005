import argparse
import logging

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

from dataset import Volumes
from networks import build_model


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = build_model(args.arch).cuda()  # finds: D013
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=args.epochs)
        self.criterion = nn.CrossEntropyLoss(ignore_index=255)
        self.scaler = GradScaler()  # finds: O010
        self.writer = SummaryWriter(args.logdir)
        self.train_loader = DataLoader(Volumes("train"), args.batch_size, shuffle=True, num_workers=8)  # finds: B010
        self.val_loader = DataLoader(Volumes("val"), 1)  # finds: B014
        self.step = 0

    def fit(self):
        for epoch in range(self.args.epochs):
            self.train_epoch(epoch)
            self.validate(epoch)
            self.scheduler.step()  # finds: O013
            torch.save(
                {"model": self.model.state_dict(), "scaler": self.scaler.state_dict(), "epoch": epoch}, "last.pth"
            )

    def train_epoch(self, epoch):
        self.model.train()
        for i, batch in enumerate(self.train_loader):
            images = batch["image"].cuda(non_blocking=True)  # finds: D013
            masks = batch["mask"].cuda(non_blocking=True)  # finds: D013
            with autocast():  # finds: P013
                logits = self.model(images)
                loss = self.criterion(logits, masks) / self.args.accum  # finds: L001
            self.scaler.scale(loss).backward()  # finds: L010
            if (i + 1) % self.args.accum == 0:  # finds: O011
                self.scaler.unscale_(self.optimizer)  # finds: O010
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # finds: O009
                self.scaler.step(self.optimizer)  # finds: O007
                self.scaler.update()  # finds: O010
                self.optimizer.zero_grad()  # finds: O008
            self.writer.add_scalar("loss", loss.item(), self.step)  # finds: D020
            self.step += 1

    @torch.no_grad()
    def validate(self, epoch):
        self.model.eval()  # finds: D014
        total = 0.0
        for batch in self.val_loader:
            with autocast():  # finds: P013
                logits = self.model(batch["image"].cuda())  # finds: D013
            total += (logits.argmax(1).cpu() == batch["mask"]).float().mean().item()  # finds: D020
        logging.info("epoch %d acc %.3f", epoch, total / len(self.val_loader))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--arch", default="unet")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--batch-size", type=int, default=2)
    p.add_argument("--accum", type=int, default=8)
    p.add_argument("--logdir", default="runs")
    Trainer(p.parse_args()).fit()
