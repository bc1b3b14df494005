"""Train with the instances that a launcher started, or with the replicas of one process; print what was learnt."""

import argparse
import json

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


def make_options(replicas, accumulation):
    if popdist.isPopdistEnvSet():
        popdist.init()
        options = popdist.poptorch.Options(ipus_per_replica=1)
    else:
        options = poptorch.Options()
        options.replicationFactor(replicas)
    options.randomSeed(42)
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    return options


def rows_of_instance(tensor, index, num_instances, replicas):
    """Cut one instance's rows out of a batch that is laid out as [accumulation][replica][row]."""
    parts = tensor.reshape(-1, replicas, 2, tensor.shape[1])
    local = replicas // num_instances
    return parts[:, index * local : (index + 1) * local].reshape(-1, tensor.shape[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--optimizer", default="AdamW")
    args = parser.parse_args()

    options = make_options(args.replicas, args.accumulation)
    index, num_instances = popdist.getInstanceIndex(), popdist.getNumInstances()
    replicas = max(args.replicas, popdist.getNumTotalReplicas())
    model = Regression()
    optimizer = getattr(poptorch.optim, args.optimizer)(model.parameters(), lr=0.1)
    trainer = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for _step in range(3):
        x, target = torch.randn(2 * replicas * args.accumulation, 3), torch.randn(2 * replicas * args.accumulation, 2)
        mine = [rows_of_instance(tensor, index, num_instances, replicas) for tensor in (x, target)]
        losses.append(trainer(*mine)[1].flatten().tolist())
    print(json.dumps({"index": index, "losses": losses, "weights": model.linear.weight.flatten().tolist()}))


if __name__ == "__main__":
    main()
