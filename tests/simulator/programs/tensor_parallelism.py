"""Shard a layer's weights over replicas that see the same data, and train as one device with all of them would."""

import poptorch
import torch
from poptorch import CommGroupType

NUM_SHARDS, NUM_COPIES = 4, 2
INPUTS, OUTPUTS, BATCH = 6, 8, 16


class Layer(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x):
        output = torch.relu(x @ self.weight)
        return poptorch.identity_loss(output**2, reduction="mean")


def train_on_the_host(x, weight):
    layer = Layer(weight.clone())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _step in range(5):
        loss = layer(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, layer.weight.detach()


def train_sharded(x, weight, weight_groups, input_groups):
    shards = weight.reshape(INPUTS, NUM_SHARDS, -1).transpose(0, 1).contiguous()
    layer = Layer(shards)
    options = poptorch.Options().replicationFactor(NUM_SHARDS * NUM_COPIES).outputMode(poptorch.OutputMode.All)
    options.inputReplicaGrouping(NUM_SHARDS, input_groups)
    training_model = poptorch.trainingModel(
        layer, options, poptorch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    )
    training_model.weight.replicaGrouping(weight_groups, NUM_COPIES, poptorch.VariableRetrievalMode.OnePerGroup)
    losses = [training_model(x).mean().item() for _step in range(5)]
    training_model.copyWeightsToHost()
    return losses, layer.weight.data.transpose(0, 1).reshape(INPUTS, OUTPUTS)


if __name__ == "__main__":
    torch.manual_seed(0)
    x, weight = torch.randn(BATCH, INPUTS), torch.randn(INPUTS, OUTPUTS)
    expected_losses, expected_weight = train_on_the_host(x, weight)
    orders = [CommGroupType.Consecutive, CommGroupType.Orthogonal]
    for weight_groups, input_groups in zip(orders, reversed(orders)):
        losses, trained = train_sharded(x, weight, weight_groups, input_groups)
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected_losses))
        torch.testing.assert_close(trained, expected_weight)
        print(f"weights {weight_groups.name}, inputs {input_groups.name}: equal")
