import os

import poptorch
import torch
import torch.distributed as dist
from torch import nn

from data import make_dataset
from model import TransformerWithLoss


class Trainer:
    def __init__(self, args):
        self.args = args
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.net = TransformerWithLoss()
        opts = poptorch.Options()  # finds: D017
        opts.replicationFactor(2)
        self.port = poptorch.trainingModel(self.net, opts, optimizer=poptorch.optim.SGD(self.net.parameters(), lr=1e-3))  # finds: O012
        self.optimizer = poptorch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.loader = poptorch.DataLoader(opts, make_dataset(), batch_size=4)
        self.log = open("train.log", "w")  # finds: K007

    def run(self):
        for epoch in range(3):
            for tokens in self.loader:
                loss = self.port(tokens)
                self.log.write(f"{loss}\n")
            self.scheduler.step()  # finds: O013
            torch.save(self.net.state_dict(), os.path.join("out", f"epoch-{epoch}.pt"))  # finds: K007


if __name__ == "__main__":
    from config import parse

    Trainer(parse()).run()
