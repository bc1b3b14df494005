"""Train in instances on a shared-out dataset, validate on the first instance only, keep a checkpoint."""

import json
import os
import sys

import horovod.torch as hvd
import popdist
import popdist.poptorch
import poptorch
import torch
from torch import nn


class Points(torch.utils.data.Dataset):
    """Points of a plane, labelled by the quadrant that they are in."""

    def __init__(self, num_points, seed):
        self.points = torch.randn(num_points, 2, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        point = self.points[index]
        return point, (point[0] > 0).long() * 2 + (point[1] > 0).long()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, points, labels=None):
        logits = self.layers(points)
        return logits if labels is None else (logits, nn.functional.cross_entropy(logits, labels))


def validate(model, checkpoint):
    model.load_state_dict(torch.load(checkpoint, weights_only=True))
    executor = poptorch.inferenceModel(model.eval(), poptorch.Options())
    points, labels = zip(*Points(64, seed=2))
    predictions = executor(torch.stack(points)).argmax(dim=1)
    executor.destroy()
    return float((predictions == torch.stack(labels)).float().mean())


def main(checkpoint):
    popdist.init()
    hvd.init()
    options = popdist.poptorch.Options(ipus_per_replica=1)
    options.randomSeed(1)
    options.deviceIterations(2)
    options.Training.gradientAccumulation(2)
    loader = poptorch.DataLoader(
        options, Points(256, seed=1), batch_size=4, shuffle=True, mode=poptorch.DataLoaderMode.Async
    )
    model = Classifier()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.02)
    trainer = poptorch.trainingModel(model, options, optimizer)
    accuracy = None
    for _epoch in range(4):
        for points, labels in loader:
            _logits, loss = trainer(points, labels)
        loss = hvd.allreduce(loss).mean().item()
        if popdist.getInstanceIndex() == 0:
            torch.save(trainer.state_dict(), checkpoint)
            trainer.detachFromDevice()
        accuracy = popdist.execute_on_instances({0}, validate, Classifier(), checkpoint)
        popdist.synchronize()
    loader.terminate()
    weights = model.layers[0].weight.flatten().tolist()
    print(json.dumps({"index": popdist.getInstanceIndex(), "accuracy": accuracy, "loss": loss, "weights": weights}))


if __name__ == "__main__":
    main(os.path.join(sys.argv[1], "checkpoint.pt"))
