"""A network learns to tell patterns apart, with a schedule, a validation each epoch, and a checkpoint."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader

from porting.recipes.convert_your_project.workload import Losses, Net, load_patterns, run_main


def main() -> Losses:
    """Train as the command line says, and save the weights of the best epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--save", default="", help="where the best weights are saved")
    args = parser.parse_args()
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
    for _epoch in range(args.epochs):
        model.train()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
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
