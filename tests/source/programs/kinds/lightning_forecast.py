"""Forecasts of electrical load with a recurrent module: manual optimisation, mixed losses."""
import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class WindowDataset(Dataset):
    def __init__(self, frame, window=96, horizon=24):
        values = frame.to_numpy(dtype=np.float64)
        self.mean, self.std = values.mean(0), values.std(0)
        self.values = torch.from_numpy((values - self.mean) / self.std).double()  # finds: C044
        self.window, self.horizon = window, horizon

    def __len__(self):
        return len(self.values) - self.window - self.horizon

    def __getitem__(self, i):
        past = self.values[i : i + self.window]
        future = self.values[i + self.window : i + self.window + self.horizon, 0]
        return past, future


def quantile_loss(pred, target, quantiles):
    losses = []
    for i, q in enumerate(quantiles):
        err = target - pred[..., i]
        losses.append(torch.max((q - 1) * err, q * err))
    return torch.stack(losses).mean()


class Seq2Seq(nn.Module):
    def __init__(self, num_features, hidden=64, horizon=24, num_quantiles=3):
        super().__init__()
        self.encoder = nn.GRU(num_features, hidden, batch_first=True)
        self.decoder = nn.GRUCell(num_quantiles, hidden)
        self.head = nn.Linear(hidden, num_quantiles)
        self.horizon = horizon
        self.teacher_forcing = 1.0

    def forward(self, past, future=None):
        _, h = self.encoder(past)
        h = h[0]
        step = torch.zeros(past.size(0), self.head.out_features)  # finds: C011
        outputs = []
        for t in range(self.horizon):
            h = self.decoder(step, h)
            step = self.head(h)
            outputs.append(step)
            if self.training and np.random.rand() < self.teacher_forcing:  # finds: C020
                step = future[:, t : t + 1].expand_as(step)
        return torch.stack(outputs, dim=1)


class LoadForecaster(pl.LightningModule):
    def __init__(self, num_features, lr=1e-3, accumulate=4):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.model = Seq2Seq(num_features).double()  # finds: C044
        self.quantiles = [0.1, 0.5, 0.9]

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        past, future = batch
        pred = self.model(past, future)
        loss = quantile_loss(pred, future, self.quantiles)  # finds: L001
        self.manual_backward(loss / self.hparams.accumulate)  # finds: L010
        if (batch_idx + 1) % self.hparams.accumulate == 0:  # finds: O011
            self.clip_gradients(opt, gradient_clip_val=0.5, gradient_clip_algorithm="norm")  # finds: O009
            opt.step()  # finds: O007
            opt.zero_grad()  # finds: O008
        self.log("loss", loss)
        if self.trainer.is_last_batch:
            self.lr_schedulers().step()  # finds: O013

    def on_train_epoch_end(self):
        self.model.teacher_forcing = max(0.0, 1.0 - self.current_epoch / 10)  # finds: C020

    def validation_step(self, batch, batch_idx):
        past, future = batch
        pred = self.model(past, future)
        loss = quantile_loss(pred, future, self.quantiles)
        self.log("val_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return [opt], [torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)]


def main():
    frame = pd.read_csv("load.csv", index_col=0)
    split = int(len(frame) * 0.8)
    train, val = WindowDataset(frame[:split]), WindowDataset(frame[split:])
    train_loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=2, drop_last=True)  # finds: B014
    val_loader = DataLoader(val, batch_size=64)  # finds: B010
    model = LoadForecaster(frame.shape[1])
    trainer = pl.Trainer(max_epochs=20, accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=1)
    trainer.fit(model, train_loader, val_loader)
    torch.save(model, "forecaster.pt")  # finds: K005
    model.eval()
    with torch.no_grad():
        past, future = val[0]
        forecast = model.model(past[None])[0, :, 1]  # finds: D014
    print("error", (forecast - future).abs().mean().item())


if __name__ == "__main__":
    main()
