"""Run a model that is split over two devices, several batches a call, and compare with the host."""

import poptorch
import torch


class TwoHalves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 2)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            hidden = torch.relu(self.first(x))
        with poptorch.Block("second", ipu_id=1):
            return self.second(hidden)


torch.manual_seed(0)
model = TwoHalves()
opts = poptorch.Options().deviceIterations(4)
opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("first"), poptorch.Stage("second")))
x = torch.randn(8, 4)
output = poptorch.inferenceModel(model, opts)(x)
torch.testing.assert_close(output, model(x))
print("pipelined", tuple(output.shape))
