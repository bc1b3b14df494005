"""Leave quietly where there is no IPU, as many programs do, or train on whatever hardware says it is there."""

import sys

import poptorch
import torch

if not poptorch.ipuHardwareIsAvailable():
    print("no IPU: nothing to do")
    sys.exit(0)

print("IPU architecture", poptorch.ipuHardwareVersion())
model = torch.nn.Linear(2, 2)
print(tuple(poptorch.inferenceModel(model)(torch.ones(1, 2)).shape))
