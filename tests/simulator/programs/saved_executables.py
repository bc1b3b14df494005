"""Compile without a device, run the files in other processes, go on where training stopped."""

import os
import subprocess
import sys
import tempfile

import poptorch
import torch
from torch import nn


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout, self.loss = nn.Linear(4, 2), nn.Dropout(0.1), nn.MSELoss()

    def forward(self, x, target=None):
        output = self.linear(self.dropout(x))
        return output if target is None else (output, self.loss(output, target))


def make_batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 4, generator=generator), torch.randn(8, 2, generator=generator)


def train(model, num_steps):
    return [round(model(*make_batch())[1].item(), 6) for _step in range(num_steps)]


def run_file(path, *words):
    """Return what this program prints in a process of its own that gets a file."""
    command = [sys.executable, __file__, path, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(folder):
    x, target = make_batch()
    torch.manual_seed(3)
    model = Regression()
    offline = poptorch.Options().useOfflineIpuTarget().randomSeed(5)
    training_model = poptorch.trainingModel(model, offline, poptorch.optim.Adam(model.parameters(), lr=0.1))
    training_model.compileAndExport(os.path.join(folder, "offline.poptorch"), x, target)
    training_model.destroy()
    online = poptorch.Options().randomSeed(5).enableExecutableCaching(os.path.join(folder, "cache"))
    training_model = poptorch.trainingModel(model, online, poptorch.optim.Adam(model.parameters(), lr=0.1))
    losses = train(training_model, 3)
    print("offline", run_file(os.path.join(folder, "offline.poptorch"), "train") == str(losses))

    checkpoint = os.path.join(folder, "sub", "trained.poptorch")
    training_model.save(checkpoint)
    losses = train(training_model, 3)
    print("resumed", run_file(checkpoint, "train") == str(losses))

    training_model.destroy()
    inference_model = poptorch.inferenceModel(model.eval())
    inference_model.compileAndExport(os.path.join(folder, "bare.poptorch"), x, export_model=False)
    try:
        poptorch.load(os.path.join(folder, "bare.poptorch"))
    except AssertionError as error:
        print("bare", "export_model=False" in str(error))
    other = Regression().eval()
    other_model = poptorch.inferenceModel(other)
    other_model.loadExecutable(os.path.join(folder, "bare.poptorch"))
    torch.testing.assert_close(other_model(x), other(x).detach())
    print("cached", len(os.listdir(os.path.join(folder, "cache"))))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(train(poptorch.load(sys.argv[1]), 3))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(place)
