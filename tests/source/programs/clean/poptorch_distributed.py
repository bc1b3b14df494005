"""ResNet-50 in several instances, with popdist, a schedule, half precision and a compilation of its own."""
import logging
import os
import time

import popdist
import popdist.poptorch
import poptorch
import torch
import torch.nn as nn
import torchvision


class ModelWithLoss(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x, labels):
        out = self.model(x)
        return self.loss(out.float(), labels)


def make_options(accumulation):
    if popdist.isPopdistEnvSet():
        opts = popdist.poptorch.Options(ipus_per_replica=1)
    else:
        opts = poptorch.Options()
    opts.Training.gradientAccumulation(accumulation)
    opts.outputMode(poptorch.OutputMode.Sum)
    opts.Precision.enableStochasticRounding(True)
    return opts


def main():
    rank = popdist.getInstanceIndex() if popdist.isPopdistEnvSet() else 0
    logging.basicConfig(filename=f"train-{rank}.log", level=logging.INFO)
    opts = make_options(16)
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.RandomResizedCrop(224), torchvision.transforms.ToTensor()]
    )
    dataset = torchvision.datasets.ImageFolder(os.environ["DATA"], transform)
    loader = poptorch.DataLoader(
        opts, dataset, batch_size=8, shuffle=True, num_workers=16, mode=poptorch.DataLoaderMode.Async, drop_last=True
    )
    model = ModelWithLoss(torchvision.models.resnet50(), nn.CrossEntropyLoss()).half()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, loss_scaling=1024.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=90)
    training_model = poptorch.trainingModel(model, opts, optimizer=optimizer)
    images, labels = next(iter(loader))
    training_model.compile(images, labels)
    for epoch in range(90):
        start = time.perf_counter()
        total = 0.0
        for step, (images, labels) in enumerate(loader):
            loss = training_model(images, labels)
            total += loss.mean().item()
        seconds = time.perf_counter() - start
        scheduler.step()
        training_model.setOptimizer(optimizer)
        logging.info("epoch %d loss %.3f, %.1f s", epoch, total / len(loader), seconds)
        if rank == 0:
            training_model.copyWeightsToHost()
            torch.save(model.state_dict(), f"checkpoint-{epoch}.pt")


if __name__ == "__main__":
    main()
