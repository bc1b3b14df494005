import torch
from torch import nn
import poptorch

import time


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


def benchmark(executor, x, repeats=100):
    executor.compile(x)
    latencies = []
    for _ in range(repeats):
        start = time.perf_counter()
        executor(x)
        latencies.append(time.perf_counter() - start)
    return sum(latencies) / len(latencies)


options = poptorch.Options()
options.deviceIterations(16)
options.setExecutionStrategy(poptorch.ShardedExecution())
options.Precision.setPartialsType(torch.half)
options.outputMode(poptorch.OutputMode.All)
model = ModelWithLoss().half()
model.eval()
executor = poptorch.inferenceModel(model, options)
print(benchmark(executor, torch.randn(128, 16).half()))
executor.detachFromDevice()
