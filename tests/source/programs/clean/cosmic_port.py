"""A trainer class with a port that has none of the usual faults."""
import logging
import os
import time

import torch
from torch import nn

import porting


class Config:
    compute_mode = "ipu"
    precision = "mixed"
    iterations = 100
    learning_rate = 3e-4
    accumulation = 2


class Trainer:
    def __init__(self, args, net, events):
        self.args = args
        self._raw_net = net
        self.events = events

    def initialize(self):
        self._opt = torch.optim.Adam(self._raw_net.parameters(), 1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(self._opt, self.lr_calculator)
        options = porting.PortOptions(
            micro_batch=1, accumulation=self.args.accumulation, precision=self.args.precision
        )
        self._net = porting.to_ipu(self._raw_net, nn.CrossEntropyLoss(), optimizer=self._opt, options=options)
        self.loader = self._net.dataloader(porting.partition(self.events))
        self.lr_scheduler = self._net.scheduler(schedule)
        self._infer = self._net.inference()
        self._net.compile(*next(iter(self.loader)))
        rank = porting.this_instance().index
        logging.getLogger().addHandler(logging.FileHandler(f"process-{rank}.log"))

    def lr_calculator(self, step):
        return self.args.learning_rate * min(1.0, (step + 1) / 100)

    def train_step(self, image, label):
        start = time.time()
        _logits, loss = self._net(image, label)
        self.lr_scheduler.step()
        logging.info("loss %.3f in %.3f s", loss.mean().item(), time.time() - start)

    def val_step(self, image):
        return self._infer(image)

    def batch_process(self):
        for step, (image, label) in enumerate(self.loader):
            if step % 10 == 0:
                self.val_step(image)
            self.train_step(image, label)
        if porting.this_instance().index == 0:
            torch.save(self._net.state_dict(), os.path.join("out", "model.ckpt"))


def main(events):
    trainer = Trainer(Config(), nn.Conv2d(3, 3, 1), events)
    trainer.initialize()
    trainer.batch_process()
