import argparse
import os
import time

import poptorch
import popdist
import popdist.poptorch
import torch
import transformers
from poptorch.optim import AdamW
from transformers import BertConfig, BertForPreTraining


class PipelinedBert(BertForPreTraining):
    def parallelize(self):
        self.bert.embeddings = poptorch.BeginBlock(self.bert.embeddings, "Embedding", ipu_id=0)
        for index, layer in enumerate(self.bert.encoder.layer):
            ipu = 1 + index // 4
            self.bert.encoder.layer[index] = poptorch.BeginBlock(layer, f"Encoder{index}", ipu_id=ipu)
            if index != self.config.num_hidden_layers - 1:
                layer.register_forward_hook(lambda module, inputs, output: poptorch.recomputationCheckpoint(output))
        self.cls = poptorch.BeginBlock(self.cls, "Heads", ipu_id=0)
        return self

    def forward(self, input_ids, attention_mask, token_type_ids, labels, next_sentence_label):
        out = super().forward(input_ids, attention_mask, token_type_ids, labels=labels, next_sentence_label=next_sentence_label)
        return poptorch.identity_loss(out.loss, reduction="none")


def get_options(config):
    opts = popdist.poptorch.Options(ipus_per_replica=4) if popdist.isPopdistEnvSet() else poptorch.Options()
    opts.deviceIterations(config.batches_per_step)
    opts.Training.gradientAccumulation(config.gradient_accumulation)
    opts.autoRoundNumIPUs(True)
    opts.outputMode(poptorch.OutputMode.Sum)
    opts.randomSeed(42)
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    opts.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
    opts.Precision.setPartialsType(torch.half)
    opts.Precision.enableStochasticRounding(True)
    return opts


def main(config):
    if popdist.isPopdistEnvSet():
        popdist.init()
    opts = get_options(config)
    model = PipelinedBert(BertConfig()).parallelize().half().train()
    optimizer = AdamW(model.parameters(), lr=config.lr, loss_scaling=1024.0, accum_type=torch.float16)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 100, config.training_steps)
    loader = poptorch.DataLoader(
        opts, get_dataset(config), batch_size=config.micro_batch_size, num_workers=8, drop_last=True,
        mode=poptorch.DataLoaderMode.AsyncRebatched,
    )
    training_model = poptorch.trainingModel(model, opts, optimizer)
    start = time.perf_counter()
    training_model.compile(*next(iter(loader)))
    print("compiled in", time.perf_counter() - start)
    factor = config.micro_batch_size * config.batches_per_step
    steps_finished = 0
    while steps_finished < config.training_steps:
        for batch in loader:
            step_start = time.perf_counter()
            loss = training_model(*batch)
            scheduler.step()
            training_model.setOptimizer(optimizer)
            step_time = time.perf_counter() - step_start
            steps_finished += 1
            if not popdist.isPopdistEnvSet() or popdist.getInstanceIndex() == 0:
                print(f"loss {loss.item():.3f} lr {scheduler.get_last_lr()} {factor / step_time:.1f} samples/s")
            if steps_finished >= config.training_steps:
                break
    if config.checkpoint_dir and (not popdist.isPopdistEnvSet() or popdist.getInstanceIndex() == 0):
        training_model.copyWeightsToHost()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(config.checkpoint_dir, "model.pt"))


def get_dataset(config):
    return torch.load(config.dataset)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--batches-per-step", type=int, default=8)
    parser.add_argument("--gradient-accumulation", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--training-steps", type=int, default=1000)
    parser.add_argument("--checkpoint-dir", default="")
    parser.add_argument("--dataset", default="")
    main(parser.parse_args())
