"""Pretrain a tiny language model the way the vendor's examples do: layers over four devices, schedules, checkpoints."""

import argparse
import os
import tempfile

import popart
import poptorch
import torch
from poptorch.optim import AdamW
from torch import nn


class MaskedTokens(torch.utils.data.Dataset):
    def __init__(self, num_sequences, length, vocabulary):
        generator = torch.Generator().manual_seed(11)
        self.tokens = torch.randint(1, vocabulary, (num_sequences, length), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        labels = self.tokens[index].clone()
        masked = labels.clone()
        masked[::3] = 0
        labels[1::3] = -100
        return {"input_ids": masked, "labels": labels}


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.expand, self.contract = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden):
        query, key, value = self.query_key_value(hidden).chunk(3, dim=-1)
        scores = torch.matmul(query, key.transpose(-1, -2)) / key.shape[-1] ** 0.5
        hidden = self.norm(hidden + self.output(torch.matmul(torch.softmax(scores, dim=-1), value)))
        return hidden + self.contract(nn.functional.gelu(self.expand(hidden)))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=20, width=16, num_layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(num_layers))
        self.head = nn.Linear(width, vocabulary)

    def parallelize(self):
        poptorch.BeginBlock(self.embedding, "embedding", ipu_id=0)
        for index, layer in enumerate(self.layers):
            poptorch.BeginBlock(layer, f"layer{index}", ipu_id=index + 1)
            layer.register_forward_hook(lambda module, inputs, result: poptorch.recomputationCheckpoint(result))
        poptorch.BeginBlock(self.head, "head", ipu_id=len(self.layers) + 1)
        return self

    def forward(self, input_ids, labels=None):
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.head(hidden)
        if labels is None:
            return logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return poptorch.identity_loss(loss, reduction="none"), logits.argmax(dim=-1)


def get_options(args):
    opts = poptorch.Options()
    opts.autoRoundNumIPUs(True)
    opts.deviceIterations(args.device_iterations)
    opts.Training.gradientAccumulation(args.gradient_accumulation)
    opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    opts.outputMode(poptorch.OutputMode.Sum)
    opts.randomSeed(args.seed)
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))
    opts.setAvailableMemoryProportion({f"IPU{index}": 0.2 for index in range(4)})
    opts.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
    opts.enableExecutableCaching(args.cache)
    opts._Popart.set("autoRecomputation", int(popart.RecomputationType.Pipeline))
    opts._Popart.set("subgraphCopyingStrategy", int(popart.SubgraphCopyingStrategy.JustInTime))
    opts._Popart.set("disableGradAccumulationTensorStreams", True)
    return opts


def get_optimizer(model):
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return AdamW(
        groups, lr=0.02, loss_scaling=16.0, accum_type=torch.float32, first_order_momentum_accum_type=torch.float32
    )


def main(args):
    opts = get_options(args)
    loader = poptorch.DataLoader(
        opts,
        MaskedTokens(64, 6, 20),
        batch_size=2,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"early_preload": True},
    )
    model = LanguageModel().parallelize().train()
    optimizer = get_optimizer(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    training_model = poptorch.trainingModel(model, opts, optimizer)
    sample = next(iter(loader))
    training_model.compile(**sample)
    losses = []
    for _epoch in range(args.epochs):
        for batch in loader:
            loss, _predictions = training_model(**batch)
            losses.append(float(loss.mean()) / (args.gradient_accumulation * args.device_iterations))
            scheduler.step()
            training_model.setOptimizer(optimizer)
    loader.terminate()

    checkpoint = os.path.join(args.cache, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": len(losses)}, checkpoint)
    training_model.destroy()
    restored = LanguageModel()
    restored.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    inference_opts = poptorch.Options().deviceIterations(4)
    restored = restored.parallelize().eval()
    inference_model = poptorch.inferenceModel(restored, inference_opts.autoRoundNumIPUs(True))
    logits = inference_model(torch.ones(4, 6, dtype=torch.long))
    print("learnt" if losses[-1] < 0.8 * losses[0] else f"did not learn: {losses}", tuple(logits.shape))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device-iterations", type=int, default=2)
    parser.add_argument("--gradient-accumulation", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    with tempfile.TemporaryDirectory() as folder:
        parser.add_argument("--cache", default=folder)
        main(parser.parse_args())
