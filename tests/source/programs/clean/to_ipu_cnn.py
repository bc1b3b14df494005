import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import porting


def make_model():
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def evaluate(ported, loader):
    correct, count = 0, 0
    infer = ported.inference()
    for images, labels in loader:
        logits = infer(images)
        correct += (logits.argmax(1) == labels).sum().item()
        count += len(labels)
    return correct / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--checkpoint", default="cnn.pt")
    args = parser.parse_args()
    augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
    train_set = datasets.CIFAR10("data", transform=augment, download=True)
    test_set = datasets.CIFAR10("data", train=False, transform=transforms.ToTensor())
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ported = porting.to_ipu(
        model, nn.CrossEntropyLoss(), optimizer=optimizer, options=porting.PortOptions(precision="mixed", accumulation=4)
    )
    loader = ported.dataloader(DataLoader(train_set, batch_size=128, shuffle=True, num_workers=8, drop_last=True))
    test_loader = ported.dataloader(DataLoader(test_set, batch_size=128), training=False)
    scheduler = ported.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader)))
    ported.compile(*next(iter(loader)))
    for epoch in range(args.epochs):
        start = time.perf_counter()
        losses = []
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.mean().item())
            scheduler.step()
        print(epoch, sum(losses) / len(losses), time.perf_counter() - start, evaluate(ported, test_loader))
        ported.save(args.checkpoint)
    torch.save(ported.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
