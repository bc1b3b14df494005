import torch
from torch import nn
import poptorch

import ctypes

ctypes.cdll.LoadLibrary("build/libops.so")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, target):
        y = poptorch.custom_op(
            [x * self.weight], "LeakyRelu", "custom.ops", 1, example_outputs=[x], attributes={"alpha": 0.02}
        )[0]
        y = poptorch.for_loop(4, lambda v: v * 0.5, [y])[0]
        y = poptorch.ipu_print_tensor(y, "y")
        y = poptorch.recomputationCheckpoint(y)
        self.count += 1
        with poptorch.Block("loss", ipu_id=0):
            loss = nn.functional.l1_loss(y, target)
        return y, loss


options = poptorch.Options()
options.anchorTensor("grad", "Gradient___model.weight")
model = Net()
port = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(10):
    y, loss = port(torch.randn(4, 16), torch.randn(4, 16))
    print(port.getAnchoredTensor("grad").abs().max().item())
