"""Drive PopTorch the way a library of pretrained models does: a parallelized twin, many options, private names."""

import contextlib
import importlib.util
import os
import pickle
import tempfile

import poptorch
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(48, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def forward(self, input_ids, labels=None):
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        logits = self.head(hidden.mean(dim=1))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class ParallelizedClassifier(Classifier):
    @classmethod
    def twin_of(cls, model):
        twin = cls()
        twin.load_state_dict(model.state_dict())
        return twin.parallelize()

    def parallelize(self):
        self.hooks = [layer.register_forward_hook(recompute) for layer in self.layers]
        self.embedding = poptorch.BeginBlock(self.embedding, "embedding", ipu_id=0)
        self.layers[1] = poptorch.BeginBlock(self.layers[1], "encoder", ipu_id=1)
        return self

    def deparallelize(self):
        while self.hooks:
            self.hooks.pop().remove()
        poptorch.removeBlocks(self)
        return self


def recompute(module, inputs, output):
    return poptorch.recomputationCheckpoint(output)


class Sentences(torch.utils.data.Dataset):
    """Sequences whose class shows in the range of their tokens."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        label = index % 3
        tokens = torch.randint(16 * label, 16 * label + 16, (6,), generator=generator)
        return {"input_ids": tokens, "labels": torch.tensor(label)}


def stack(samples):
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def make_options(for_inference):
    options = poptorch.Options().autoRoundNumIPUs(True).showCompilationProgressBar(False)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))
    options.setAvailableMemoryProportion({"IPU0": 0.2, "IPU1": 0.3})
    options.Precision.setPartialsType(torch.float16)
    options._Popart.set("disableGradAccumulationTensorStreams", True)
    options._Popart.set("outlineThreshold", 10.0)
    options._Popart.set("engineOptions", {"target.syncReplicasIndependently": "true"})
    options._Popart.setPatterns({"TiedGather": True, "TiedGatherAccumulate": True})
    if for_inference:
        return options.deviceIterations(2).outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(4).setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.PostAndLoss
    )
    options.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
    return options.outputMode(poptorch.OutputMode.Final).randomSeed(42)


def make_optimizer(model):
    decayed = [parameter for name, parameter in model.named_parameters() if "bias" not in name]
    others = [parameter for name, parameter in model.named_parameters() if "bias" in name]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return poptorch.optim.AdamW(groups, lr=0.02, loss_scaling=16.0, bias_correction=False, accum_type=torch.float32)


@contextlib.contextmanager
def unwrapped(model):
    poptorch._impl.unwrapModelIfNecessary(model)
    try:
        yield model
    finally:
        poptorch._impl.rewrapModelIfNecessary(model)


def train(model, num_epochs):
    options = make_options(for_inference=False)
    loader = poptorch.DataLoader(
        options, Sentences(), batch_size=4, shuffle=True, num_workers=8, collate_fn=stack,
        mode=poptorch.DataLoaderMode.AsyncRebatched, rebatched_worker_size=4
    )  # fmt: skip
    optimizer = make_optimizer(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 100))
    executor = poptorch.trainingModel(model.train(), options=options, optimizer=optimizer)
    executor.compile(**next(iter(loader)))
    losses = []
    for _epoch in range(num_epochs):
        for batch in loader:
            losses.append(float(executor(**batch)["loss"]))
            optimizer._opt_called = True  # or the scheduler complains
            scheduler.step()
            executor.setOptimizer(optimizer)
    loader.terminate()
    executor.detachFromDevice()
    return executor, losses


def evaluate(model):
    options = make_options(for_inference=True)
    executor = poptorch.inferenceModel(model.eval(), options=options)
    loader = poptorch.DataLoader(options, Sentences(), batch_size=4, drop_last=False, collate_fn=stack)
    hits = []
    for batch in loader:
        num_samples = len(batch["labels"])
        missing = loader.combinedBatchSize - num_samples
        padded = {name: torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) for name, rows in batch.items()}
        logits = executor(**padded)["logits"][:num_samples]
        hits.append(logits.argmax(dim=-1) == batch["labels"])
    return torch.cat(hits)


class CountingExecutor(poptorch.PoplarExecutor):
    num_calls = 0

    def __call__(self, *args, **kwargs):
        type(self).num_calls += 1
        return super().__call__(*args, **kwargs)


def main(folder):
    torch.manual_seed(0)
    model = ParallelizedClassifier.twin_of(Classifier())
    executor, losses = train(model, num_epochs=15)
    print("learnt", losses[-1] < 0.5 * losses[0])

    path = os.path.join(folder, "model.bin")
    with unwrapped(model):
        print("unwrapped", type(model).__name__, type(model.head.weight).__name__)
        pickle.dumps(model)
        torch.save(model.state_dict(), path)
    print("wrapped", type(model).__name__)
    hits = evaluate(model)
    print("evaluated", len(hits), float(hits.float().mean()) > 0.9)

    plain = Classifier()
    plain.load_state_dict(torch.load(path))
    batch = stack([Sentences()[index] for index in range(4)])
    counted = CountingExecutor(plain, poptorch.Options(), training=False, poptorch_version=poptorch.__version__)
    torch.testing.assert_close(counted(**batch)["logits"], plain(**batch)["logits"].detach())
    print("subclassed", CountingExecutor.num_calls)

    spec = importlib.util.find_spec("poptorch._poplar_executor")
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    executor.destroy()
    model.deparallelize()
    torch.testing.assert_close(poptorch.inferenceModel(model)(**batch)["logits"], plain(**batch)["logits"].detach())
    print("executed again", again.PoplarExecutor.__name__)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
