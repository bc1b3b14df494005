"""Train and validate in turn, stop early, and resume from a checkpoint with the optimizer's and scheduler's state."""

import os
import tempfile

import poptorch
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        logits = self.layers(x)
        return torch.softmax(logits, dim=-1) if labels is None else (logits, self.loss(logits, labels))


class Session:
    """A network with its two executors, which have the device in turn."""

    def __init__(self):
        torch.manual_seed(1)
        self.network = Classifier()
        self.optimizer = poptorch.optim.AdamW(self.network.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4], gamma=0.5)
        on_demand = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
        self.training_options, self.validation_options = on_demand.clone().deviceIterations(2), on_demand
        self.training_options.Training.gradientAccumulation(3)
        self.validation_options.deviceIterations(5)
        self.epoch = 0

    def wrap(self):
        self.training_model = poptorch.trainingModel(self.network, self.training_options, self.optimizer)
        self.inference_model = poptorch.inferenceModel(self.network, self.validation_options)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(300, 10, generator=generator)
        rows = torch.utils.data.TensorDataset(x, x[:, :3].argmax(dim=1))
        training, validation = torch.utils.data.random_split(rows, [240, 60], generator=generator)
        self.training_loader = poptorch.DataLoader(self.training_options, training, batch_size=4)
        self.validation_loader = poptorch.DataLoader(self.validation_options, validation, batch_size=4)
        return self

    def run_epoch(self):
        losses = [float(self.training_model(*batch)[1]) for batch in self.training_loader]
        self.training_model.detachFromDevice()
        hits = [self.inference_model(x).argmax(dim=1) == labels for x, labels in self.validation_loader]
        self.inference_model.detachFromDevice()
        self.optimizer.step()  # schedulers want it; there are no gradients on the host
        self.scheduler.step()
        self.training_model.setOptimizer(self.optimizer)
        self.epoch += 1
        return losses[-1], float(torch.cat(hits).float().mean()), self.optimizer.param_groups[0]["lr"]

    def parts(self):
        return {"network": self.network, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def save(self, path):
        torch.save({"epoch": self.epoch, **{name: part.state_dict() for name, part in self.parts().items()}}, path)

    def load(self, path):
        checkpoint = torch.load(path)
        self.epoch = checkpoint["epoch"]
        for name, part in self.parts().items():
            part.load_state_dict(checkpoint[name])
        return self


def main(folder):
    path = os.path.join(folder, "best.pt")
    session = Session().wrap()
    for _epoch in range(3):
        loss, accuracy, rate = session.run_epoch()
    session.save(path)
    print(f"trained {session.epoch} epochs, accuracy above 90%: {accuracy > 0.9}, learning rate {rate}")
    expected = [session.run_epoch() for _epoch in range(2)]

    resumed = Session().load(path).wrap()
    history = [resumed.run_epoch() for _epoch in range(2)]
    print(f"resumed to {resumed.epoch} epochs, as without a break: {history == expected}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
