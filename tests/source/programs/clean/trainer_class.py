import torch
from torch import nn
import poptorch

from torch.utils.data import TensorDataset


class ModelWithLoss(nn.Module):
    def __init__(self, hidden=32, num_classes=10):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        output = self.layers(x)
        if labels is None:
            return output
        return output, self.criterion(output, labels)


class Trainer:
    def __init__(self, model, optimizer, options, loader, val_loader, scheduler=None, callbacks=()):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.loader, self.val_loader = loader, val_loader
        self.training_model = poptorch.trainingModel(model, options, optimizer)
        self.inference_model = poptorch.inferenceModel(model, options)
        self.callbacks = list(callbacks)
        self.best, self.patience = float("inf"), 3

    def fit(self, epochs):
        for epoch in range(epochs):
            train_loss = self._run_epoch(self.loader)
            val_loss = self.evaluate(self.val_loader)
            if self.scheduler is not None:
                self.scheduler.step()
                self.training_model.setOptimizer(self.optimizer)
            for callback in self.callbacks:
                callback(epoch, train_loss, val_loss)
            if val_loss > self.best:
                self.patience -= 1
                if self.patience == 0:
                    break
            self.best = min(self.best, val_loss)

    def _run_epoch(self, loader):
        losses = []
        for batch in loader:
            _, loss = self.training_model(*batch)
            losses.append(loss.mean())
        return torch.stack(losses).mean().item()

    def evaluate(self, loader):
        self.training_model.detachFromDevice()
        self.model.eval()
        right, total = 0, 0
        for x, y in loader:
            right += (self.inference_model(x).argmax(-1) == y).sum().item()
            total += len(y)
        self.inference_model.detachFromDevice()
        self.model.train()
        self.training_model.attachToDevice()
        return 1 - right / total


options = poptorch.Options()
dataset = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
make = lambda shuffle: poptorch.DataLoader(options, dataset, batch_size=8, shuffle=shuffle)
model = ModelWithLoss()
optimizer = poptorch.optim.RMSprop(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
Trainer(model, optimizer, options, make(True), make(False), scheduler).fit(10)
