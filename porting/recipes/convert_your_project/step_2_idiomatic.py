"""A network learns to tell patterns apart, with a schedule, a validation each epoch, and a checkpoint."""

from __future__ import annotations

import os
import argparse

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader

from porting.recipes.convert_your_project.workload import Losses, Net, load_patterns, run_main

try:
    from porting import PortOptions, PortedModel, to_ipu
except ImportError:  # without ipu-porting the program trains as before
    PortOptions, PortedModel, to_ipu = None, (), None


def main() -> Losses:
    """Train as the command line says, and save the weights of the best epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--save", default="", help="where the best weights are saved")
    parser.add_argument("--device", choices=("ipu", "sim", "cpu", "cuda"), help="ipu, or sim, the simulator of an IPU: train a port")
    args = parser.parse_args()
    if args.device in ("ipu", "sim"):
        os.environ["PORT_DEVICE"] = args.device
    if args.device == "cpu" or "PORT_DEVICE" in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, valid_set = load_patterns()
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=32)
    model = Net().to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    losses, best, accuracy = [], 0.0, 0.0
    if "PORT_DEVICE" in os.environ:
        model = to_ipu(
            model,
            criterion,
            optimizer=optimizer,
            options=PortOptions(max_executables=8),
            device=os.environ["PORT_DEVICE"],
        )
        model.warm_up(train_loader)
    for _epoch in range(args.epochs):
        model.train()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            if isinstance(model, PortedModel):
                output, loss = model(images, labels)
            else:
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        scheduler.step()

        model.eval()
        num_correct = 0
        with torch.no_grad():
            for images, labels in valid_loader:
                guesses = model(images.to(device)).argmax(dim=1)
                num_correct += (guesses == labels.to(device)).sum().item()
        accuracy = num_correct / len(valid_set)
        if args.save and accuracy > best:
            torch.save(model.state_dict(), args.save)
        best = max(best, accuracy)
    return Losses(losses, accuracy)


def train(num_steps: int) -> Losses:
    """Return the first `num_steps` losses, and the accuracy after their last epoch."""
    return run_main(main, __file__, num_steps)


if __name__ == "__main__":
    print(main())
