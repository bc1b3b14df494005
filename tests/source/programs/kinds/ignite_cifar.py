"""CIFAR10 with Ignite's engines, in the manner of its examples."""
from pathlib import Path

import ignite.distributed as idist
import torch
import torch.nn as nn
import torch.optim as optim
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import Checkpoint, DiskSaver, PiecewiseLinear, global_step_from_engine
from ignite.metrics import Accuracy, Loss
from ignite.utils import manual_seed, setup_logger
from torch.cuda.amp import GradScaler, autocast
from torchvision import datasets, models
from torchvision.transforms import Compose, Normalize, Pad, RandomCrop, RandomHorizontalFlip, ToTensor

import fire

train_transform = Compose([Pad(4), RandomCrop(32), RandomHorizontalFlip(), ToTensor(), Normalize((0.49,) * 3, (0.2,) * 3)])
test_transform = Compose([ToTensor(), Normalize((0.49,) * 3, (0.2,) * 3)])


def get_dataflow(config):
    train = datasets.CIFAR10(config["data_path"], train=True, download=True, transform=train_transform)
    test = datasets.CIFAR10(config["data_path"], train=False, transform=test_transform)
    train_loader = idist.auto_dataloader(  # finds: B014
        train, batch_size=config["batch_size"], num_workers=config["num_workers"], shuffle=True, drop_last=True
    )
    test_loader = idist.auto_dataloader(test, batch_size=2 * config["batch_size"], num_workers=config["num_workers"])  # finds: B010
    return train_loader, test_loader


def initialize(config):
    model = models.resnet18(num_classes=10)
    model = idist.auto_model(model, find_unused_parameters=True)  # finds: D012
    optimizer = optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9, weight_decay=1e-4, nesterov=True)
    criterion = nn.CrossEntropyLoss().to(idist.device())
    length = config["num_iters_per_epoch"]
    milestones = [(0, 0.0), (4 * length, config["lr"]), (config["epochs"] * length, 0.0)]
    return model, optimizer, criterion, PiecewiseLinear(optimizer, param_name="lr", milestones_values=milestones)


def create_trainer(model, optimizer, criterion, lr_scheduler, config, logger):
    device = idist.device()
    scaler = GradScaler(enabled=config["with_amp"])  # finds: O010

    def train_step(engine, batch):
        x, y = batch[0], batch[1]
        if x.device != device:
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
        model.train()
        with autocast(enabled=config["with_amp"]):  # finds: P013
            y_pred = model(x)
            loss = criterion(y_pred, y)  # finds: L001
        optimizer.zero_grad()  # finds: O008
        scaler.scale(loss).backward()  # finds: L010
        scaler.step(optimizer)  # finds: O007
        scaler.update()  # finds: O010
        return {"batch loss": loss.item()}  # finds: D020

    trainer = Engine(train_step)
    trainer.add_event_handler(Events.ITERATION_STARTED, lr_scheduler)  # finds: O013

    @trainer.on(Events.ITERATION_COMPLETED(every=100))
    def log_loss(engine):
        logger.info("epoch %d loss %.4f", engine.state.epoch, engine.state.output["batch loss"])

    ProgressBar().attach(trainer, output_transform=lambda out: out)
    return trainer


def training(local_rank, config):
    manual_seed(config["seed"] + idist.get_rank())
    logger = setup_logger("cifar")
    train_loader, test_loader = get_dataflow(config)
    config["num_iters_per_epoch"] = len(train_loader)
    model, optimizer, criterion, lr_scheduler = initialize(config)
    trainer = create_trainer(model, optimizer, criterion, lr_scheduler, config, logger)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
    evaluator = create_supervised_evaluator(model, metrics=metrics, device=idist.device())  # finds: D014

    @trainer.on(Events.EPOCH_COMPLETED(every=3) | Events.COMPLETED)
    def run_validation(engine):
        state = evaluator.run(test_loader)
        logger.info("accuracy %.4f", state.metrics["accuracy"])

    saver = DiskSaver(Path(config["output_path"]), require_empty=False)
    to_save = {"model": model, "optimizer": optimizer, "trainer": trainer}
    best = Checkpoint(to_save, saver, n_saved=2, global_step_transform=global_step_from_engine(trainer))
    evaluator.add_event_handler(Events.COMPLETED, best)
    trainer.run(train_loader, max_epochs=config["epochs"])


def run(data_path="/tmp/cifar10", output_path="/tmp/out", batch_size=512, epochs=24, lr=0.4, with_amp=False, nproc_per_node=None):
    config = dict(locals(), seed=543, num_workers=12)
    with idist.Parallel(backend="nccl", nproc_per_node=nproc_per_node) as parallel:  # finds: D018
        parallel.run(training, config)


if __name__ == "__main__":
    fire.Fire({"run": run})
