"""A small trainer with callbacks, like Keras."""
import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def on_epoch_end(self, trainer, logs):
        pass


class EarlyStopping(Callback):
    def __init__(self, patience=3):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def on_epoch_end(self, trainer, logs):
        if logs["val_loss"] < self.best:
            self.best, self.bad = logs["val_loss"], 0
            torch.save(trainer.model, "best.pt")  # finds: K005
        else:
            self.bad += 1
            trainer.stop = self.bad >= self.patience


class Trainer:
    def __init__(self, model, loss="mse", optimizer="adam", lr=1e-3, callbacks=()):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)
        self.loss_fn = {"mse": nn.MSELoss(), "ce": nn.CrossEntropyLoss()}[loss]
        self.opt = {"adam": optim.Adam, "sgd": optim.SGD}[optimizer](self.model.parameters(), lr=lr)
        self.callbacks = callbacks
        self.stop = False

    def _step(self, xb, yb, train=True):
        xb, yb = xb.to(self.device), yb.to(self.device)
        pred = self.model(xb)
        loss = self.loss_fn(pred, yb)  # finds: L001
        if train:
            self.opt.zero_grad()  # finds: O008
            loss.backward()  # finds: L010
            self.opt.step()  # finds: O007
        return loss.item(), (pred.argmax(-1) == yb).float().mean().item()  # finds: D020

    def fit(self, x, y, validation_data=None, batch_size=32, epochs=10):
        ds = TensorDataset(torch.as_tensor(x), torch.as_tensor(y))
        dl = DataLoader(ds, batch_size=batch_size, shuffle=True)  # finds: B010
        history = {"loss": [], "val_loss": []}
        for epoch in range(epochs):
            self.model.train()
            losses = [self._step(xb, yb)[0] for xb, yb in dl]
            logs = {"loss": np.mean(losses), "val_loss": self.evaluate(*validation_data, batch_size=batch_size)}
            for key, value in logs.items():
                history[key].append(value)
            for callback in self.callbacks:
                callback.on_epoch_end(self, logs)
            if self.stop:
                break
        return history

    def evaluate(self, x, y, batch_size=32):
        self.model.eval()  # finds: D014
        dl = DataLoader(TensorDataset(torch.as_tensor(x), torch.as_tensor(y)), batch_size=batch_size)  # finds: B010
        with torch.no_grad():
            return np.mean([self._step(xb, yb, train=False)[0] for xb, yb in dl])


if __name__ == "__main__":
    x = np.random.rand(1000, 20).astype("float32")
    y = np.random.randint(0, 3, 1000)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    Trainer(net, loss="ce", callbacks=[EarlyStopping()]).fit(x, y, (x[:100], y[:100]), epochs=20)
