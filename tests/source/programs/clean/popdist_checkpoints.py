import argparse
import logging
import os
import time

import popdist
import popdist.poptorch
import poptorch
import torch
from torch import nn
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


def save_checkpoint(path, model, step):
    os.makedirs(path, exist_ok=True)
    torch.save({"step": step, "weights": model.state_dict()}, os.path.join(path, f"step_{step}.pt"))


def save_on_instance_zero(args, model, step):
    if args.use_popdist:
        popdist.execute_on_instances({0}, save_checkpoint, args.output, model, step)
    else:
        save_checkpoint(args.output, model, step)


def init_popdist(args):
    popdist.init()
    args.use_popdist = True
    args.popdist_size = popdist.getNumInstances()
    args.popdist_rank = popdist.getInstanceIndex()
    args.replicas = popdist.getNumLocalReplicas()


def get_options(args):
    if args.use_popdist:
        options = popdist.poptorch.Options(ipus_per_replica=1)
    else:
        options = poptorch.Options()
        options.replicationFactor(args.replicas)
    options.deviceIterations(args.device_iterations)
    return options


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="checkpoints")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--device-iterations", type=int, default=1)
    args = parser.parse_args()
    args.use_popdist = False
    args.popdist_rank = 0
    if popdist.isPopdistEnvSet():
        init_popdist(args)
    if not args.use_popdist or args.popdist_rank == 0:
        logging.basicConfig(filename="train.log", level=logging.INFO)
    options = get_options(args)
    model = ModelWithLoss()
    dataset = TensorDataset(torch.randn(256, 16), torch.randint(10, (256,)))
    loader = poptorch.DataLoader(options, dataset, batch_size=8, shuffle=True)
    port = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    x, y = next(iter(loader))
    port.compile(x, y)
    for epoch in range(10):
        start = time.perf_counter()
        for x, y in loader:
            _, loss = port(x, y)
        logging.info("epoch %d: %.3f s", epoch, time.perf_counter() - start)
        save_on_instance_zero(args, model, epoch)


if __name__ == "__main__":
    main()
