import torch
from torch import nn
import poptorch

from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __init__(self, num_batches):
        self.num_batches = num_batches

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        count = self.num_batches if info is None else self.num_batches // info.num_workers
        for _ in range(count):
            yield torch.randn(16), torch.randn(16)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x, y):
        x = poptorch.set_overlap_for_input(x, poptorch.OverlapMode.OverlapAccumulationLoop)
        poptorch.Block.start("0")
        x = self.first(x)
        poptorch.Block.start("1")
        x = self.second(x)
        loss = poptorch.identity_loss(((x - y) ** 2).mean(), reduction="none")
        return poptorch.set_overlap_for_output(loss, poptorch.OverlapMode.OverlapAccumulationLoop)


options = poptorch.Options()
options.Training.gradientAccumulation(8)
options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("0").ipu(0), poptorch.Stage("1").ipu(1)))
options.TensorLocations.numIOTiles(32)
model = Net()
port = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.01))
base = poptorch.DataLoader(options, Stream(6400), batch_size=1, drop_last=True)
with poptorch.AsynchronousDataAccessor(base) as data:
    for x, y in data:
        print(port(x, y).mean())
