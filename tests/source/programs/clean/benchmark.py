import torch
from torch import nn
import poptorch

import argparse
import time

import torchvision


class Wrapped(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, args, loss_inputs=None):
        output = self.model(args)
        if loss_inputs is None:
            return output
        return output, self.loss(output, loss_inputs)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--device-iterations", type=int, default=1)
parser.add_argument("--precision", choices=["16.16", "16.32", "32.32"], default="16.16")
opts = parser.parse_args()
options = poptorch.Options()
options.replicationFactor(opts.replicas)
options.deviceIterations(opts.device_iterations)
options.Precision.setPartialsType(torch.float16 if opts.precision.endswith("16") else torch.float32)
model = torchvision.models.resnet50()
if opts.precision.startswith("16"):
    model.half()
training = Wrapped(model, nn.CrossEntropyLoss(reduction="mean")).train()
port = poptorch.trainingModel(training, options, poptorch.optim.SGD(training.parameters(), lr=0.1))
rows = opts.batch_size * opts.replicas * opts.device_iterations
images, labels = torch.randn(rows, 3, 224, 224).half(), torch.randint(1000, (rows,))
port.compile(images, labels)
start = time.perf_counter()
for _ in range(10):
    port(images, labels)
print(10 * rows / (time.perf_counter() - start), "images per second")
