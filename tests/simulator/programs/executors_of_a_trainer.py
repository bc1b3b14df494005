"""Drive PopTorch the way a training framework's strategy does: one wrapper module, executors that attach in turn."""

import poptorch
import torch
from torch import nn


class Task(nn.Module):
    """What a user of the framework writes: steps for each stage."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.trainer = None

    def training_step(self, x, labels):
        return nn.functional.cross_entropy(self.layer(x), labels)

    def validation_step(self, x, labels):
        return (self.layer(x).argmax(dim=-1) == labels).float().mean()


class StepOfStage(nn.Module):
    """Runs the step of the trainer's stage; it knows the trainer, who knows the executors: a cycle."""

    def __init__(self, task):
        super().__init__()
        self.task = task

    def forward(self, *batch):
        return getattr(self.task, f"{self.task.trainer.stage}_step")(*batch)


class Trainer:
    def __init__(self, task, replicas, accumulation):
        self.task, task.trainer, self.stage = task, self, None
        self.optimizer = torch.optim.SGD(task.parameters(), lr=0.2)
        module = StepOfStage(task)
        training_options = poptorch.Options().replicationFactor(replicas).randomSeed(3)
        training_options.Training.gradientAccumulation(accumulation)
        self.options = {
            "training": training_options,
            "validation": poptorch.Options().replicationFactor(replicas).deviceIterations(2),
        }
        self.executors = {
            "training": poptorch.trainingModel(module, self.options["training"], self.optimizer),
            "validation": poptorch.inferenceModel(module, self.options["validation"]),
        }
        assert self.executors["training"]._options.toDict()["replication_factor"] == replicas

    def enter(self, stage):
        for executor in self.executors.values():
            if executor._executable is not None and executor.isAttachedToDevice():
                executor.detachFromDevice()
        self.stage = stage
        if self.executors[stage]._executable is not None:
            self.executors[stage].attachToDevice()

    def run(self, stage, data):
        self.enter(stage)
        results = []
        for batch in poptorch.DataLoader(self.options[stage], data, batch_size=4, shuffle=stage == "training"):
            if stage == "training":
                self.executors[stage].setOptimizer(self.optimizer)
            results.append(self.executors[stage](*batch).mean())
        return float(torch.stack(results).mean())

    def fit(self, data, num_epochs):
        self.run("validation", data)
        for _epoch in range(num_epochs):
            loss = self.run("training", data)
            accuracy = self.run("validation", data)
        return loss, accuracy

    def close(self):
        for executor in self.executors.values():
            executor.destroy()


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(128, 8)
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    for replicas, accumulation in ((1, 1), (2, 2)):
        task = Task()
        trainer = Trainer(task, replicas, accumulation)
        first_loss = trainer.run("training", data)
        loss, accuracy = trainer.fit(data, num_epochs=4)
        trainer.close()
        on_the_host = (task.layer(x).argmax(dim=-1) == data.tensors[1]).float().mean()
        assert type(task) is Task
        assert abs(accuracy - on_the_host) < 1e-6
        print(f"{replicas} replicas, accumulation {accumulation}:", loss < first_loss, accuracy > 0.85)
