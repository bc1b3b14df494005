"""Train in two instances of which the second one fails, in the way that the command line says."""

import os
import signal
import sys
import time

import popdist
import popdist.poptorch
import poptorch
import torch

FAILURES = {
    "raise": lambda: int("not a number"),
    "leave": lambda: sys.exit(0),
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(600),
}

torch.manual_seed(0)


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.linear(x) ** 2, reduction="mean")


trainer = poptorch.trainingModel(Regression(), popdist.poptorch.Options())
for step in range(4):
    if step == 2 and popdist.getInstanceIndex() == 1:
        FAILURES[sys.argv[1]]()
    trainer(torch.ones(2, 3))
print("trained to the end")
