"""Start each instance from weights of its own, take those of the first one, and train."""

import json

import horovod.torch as hvd
import popdist
import popdist.poptorch
import poptorch
import torch


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x, target):
        output = self.linear(x)
        return output, torch.nn.functional.mse_loss(output, target)


popdist.init()
hvd.init()
torch.manual_seed(hvd.rank())
model = Regression()
own = model.linear.weight.flatten().tolist()
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
trainer = poptorch.trainingModel(model, popdist.poptorch.Options(), poptorch.optim.SGD(model.parameters(), lr=0.1))
loss = trainer(torch.randn(4, 3), torch.randn(4, 2))[1]
average = hvd.allreduce(loss).item()
record = {"index": hvd.rank(), "own": own, "average": average, "weights": model.linear.weight.flatten().tolist()}
print(json.dumps(record))
