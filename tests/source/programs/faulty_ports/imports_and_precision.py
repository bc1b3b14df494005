import argparse

import poptorch  # finds: D010
import torch
from torch import nn

from data import make_dataset

try:
    import popdist.poptorch
except ImportError:  # finds: D011
    pass

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cpu", "ipu"], default="cpu")
parser.add_argument("--precision", choices=["float32", "float16"], default="float32")
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)

    def forward(self, x, labels):
        out = self.net(x)
        return out, labels, nn.functional.cross_entropy(out, labels)  # finds: L013


model = Model()
if args.device == "ipu":
    opts = popdist.poptorch.Options()
    opts.replicationFactor(args.replicas)  # finds: P014
    loader = poptorch.DataLoader(opts, make_dataset(), batch_size=8)
    port = poptorch.trainingModel(model, opts, optimizer=torch.optim.SGD(model.parameters(), lr=args.lr))  # finds: P012
    for x, y in loader:
        out, labels, loss = port(x, y)
