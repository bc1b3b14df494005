import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import poptorch
except ImportError:
    poptorch = None


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


def make_loader(args, options, dataset):
    if args.device == "ipu":
        return poptorch.DataLoader(options, dataset, batch_size=args.batch_size, shuffle=True)
    return DataLoader(dataset, batch_size=args.batch_size, shuffle=True)


def train_epoch(args, model, loader, optimizer, scaler):
    for x, y in loader:
        if args.device == "ipu":
            output, loss = model(x, y)
        else:
            x, y = x.to(args.device), y.to(args.device)
            optimizer.zero_grad()
            with torch.cuda.amp.autocast(enabled=args.amp):
                output, loss = model(x, y)
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda", "ipu"], default="cpu")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    model = ModelWithLoss()
    dataset = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
    options = scaler = None
    if args.device == "ipu":
        options = poptorch.Options()
        if args.amp:
            model.half()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
        model = poptorch.trainingModel(model, options, optimizer)
    else:
        model.to(args.device)
        if args.device == "cuda":
            torch.backends.cudnn.benchmark = True
            model = nn.DataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.cuda.amp.GradScaler(enabled=args.amp)
    loader = make_loader(args, options, dataset)
    for epoch in range(3):
        train_epoch(args, model, loader, optimizer, scaler)


if __name__ == "__main__":
    main()
