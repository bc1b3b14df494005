"""Split one network over four devices in every way that PopTorch has; all of them train alike."""

import poptorch
import torch
import torch.nn as nn
from poptorch import AutoStage, Phase, Stage

BLOCKS = ("input", "hidden", "deep", "output")


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (8, 16, 12, 8, 4)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in zip(sizes, sizes[1:]))
        self.loss = nn.CrossEntropyLoss()

    def run_layer(self, index, x):
        return self.layers[index](x if index == 0 else torch.relu(x))

    def finish(self, logits, labels):
        return logits if labels is None else (logits, self.loss(logits, labels))


class WithBlocks(Network):
    def forward(self, x, labels=None):
        for index, block in enumerate(BLOCKS[:-1]):
            with poptorch.Block(block, ipu_id=index):
                x = self.run_layer(index, x)
        with poptorch.Block(BLOCKS[-1], ipu_id=3):
            return self.finish(self.run_layer(3, x), labels)


class WithStarts(Network):
    def forward(self, x, labels=None):
        for index, block in enumerate(BLOCKS):
            poptorch.Block.start(block, ipu_id=index)
            x = self.run_layer(index, x)
        return self.finish(x, labels)


class WithHooks(Network):
    def __init__(self):
        super().__init__()
        for index, block in enumerate(BLOCKS):
            self.layers[index] = poptorch.BeginBlock(self.layers[index], block, ipu_id=index)

    def forward(self, x, labels=None):
        for index in range(4):
            x = self.run_layer(index, x)
        return self.finish(x, labels)


def phases_on(strategy, *ipus):
    for phase, its_ipus in enumerate(ipus):
        strategy.phase(phase).ipus(*its_ipus)
    return strategy


def strategies():
    """Return the strategies by name, new ones each time."""
    return {
        "the default": poptorch.PipelinedExecution(),
        "a stage for each device": poptorch.PipelinedExecution(AutoStage.SameAsIpu),
        "a stage for each block": poptorch.PipelinedExecution(AutoStage.AutoIncrement),
        "names": poptorch.PipelinedExecution(*BLOCKS),
        "lists": poptorch.PipelinedExecution(["input", "hidden"], ["deep", "output"]),
        "stages": poptorch.PipelinedExecution(Stage("input", "hidden").ipu(0), Stage("deep", "output").ipu(1)),
        "shards": poptorch.ShardedExecution(),
        "serial phases": poptorch.SerialPhasedExecution(*(Phase(block) for block in BLOCKS)).setTensorsLiveness(
            poptorch.Liveness.OffChipAfterEachPhase
        ),
        "serial phases of two stages": phases_on(
            poptorch.SerialPhasedExecution([Stage("input"), Stage("hidden")], [Stage("deep"), Stage("output")]),
            (0, 1),
            (0, 1),
        ),
        "parallel phases": phases_on(
            poptorch.ParallelPhasedExecution(*BLOCKS).useSeparateBackwardPhase(True), (0,), (1,), (2,), (3,)
        ),
    }


def make_options(strategy):
    return poptorch.Options().autoRoundNumIPUs(True).setExecutionStrategy(strategy)


def train(network, options):
    options.Training.gradientAccumulation(8)
    generator = torch.Generator().manual_seed(2)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=generator), torch.arange(64) % 4)
    optimizer = poptorch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    training_model = poptorch.trainingModel(network.train(), options, optimizer)
    losses = [float(training_model(*batch)[1]) for batch in poptorch.DataLoader(options, data, batch_size=2)]
    training_model.destroy()
    return losses


def main():
    expected = None
    x = torch.ones(16, 8)
    for kind in (WithBlocks, WithStarts, WithHooks):
        for name, strategy in strategies().items():
            torch.manual_seed(7)
            network = kind()
            losses = train(network, make_options(strategy))
            expected = expected or losses
            assert losses == expected, (kind, name, losses, expected)

            inference_options = make_options(strategies()[name]).deviceIterations(8)
            logits = poptorch.inferenceModel(network.eval(), inference_options)(x)
            torch.testing.assert_close(logits, network(x).detach())
        print(kind.__name__, "trains alike in", len(strategies()), "ways")


if __name__ == "__main__":
    main()
