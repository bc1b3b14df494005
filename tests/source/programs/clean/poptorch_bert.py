import argparse
import sys
import time

import numpy as np
import poptorch
import torch
import transformers


class PipelinedBert(transformers.BertForSequenceClassification):
    def parallelize(self):
        self.bert.embeddings = poptorch.BeginBlock(self.bert.embeddings, "Embedding", ipu_id=0)
        for index, layer in enumerate(self.bert.encoder.layer):
            self.bert.encoder.layer[index] = poptorch.BeginBlock(layer, f"Encoder{index}", ipu_id=1 + index // 6)
        return self

    def forward(self, input_ids, attention_mask, labels=None):
        outputs = super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        if labels is None:
            return outputs.logits
        return poptorch.identity_loss(outputs.loss, reduction="none"), outputs.logits


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args(argv)
    if not poptorch.ipuHardwareIsAvailable():
        print("no IPUs here")
        return
    np.random.seed(0)
    opts = poptorch.Options().deviceIterations(1)
    opts.Training.gradientAccumulation(8)
    opts._Popart.set("saveInitializersToFile", "weights.onnx")
    config = transformers.BertConfig()
    model = PipelinedBert(config).parallelize().half().train()
    optimizer = poptorch.optim.AdamW(
        [{"params": model.parameters(), "weight_decay": 0.01}], lr=1e-4, loss_scaling=128.0, bias_correction=False
    )
    training_model = poptorch.trainingModel(model, opts, optimizer)
    tokens = torch.randint(0, config.vocab_size, (8, 128), dtype=torch.int32)
    mask = torch.ones(8, 128, dtype=torch.int32)
    labels = torch.randint(0, 2, (8,), dtype=torch.int32)
    t = time.time()
    training_model.compile(tokens, mask, labels)
    print("compiled in", time.time() - t)
    t = time.time()
    for step in range(args.steps):
        loss, _logits = training_model(tokens, mask, labels)
        print(step, loss.mean().item())
        for group in optimizer.param_groups:
            group["lr"] = 1e-4 * (1 - step / args.steps)
        training_model.setOptimizer(optimizer)
    print("steps/s", args.steps / (time.time() - t))
    training_model.detachFromDevice()
    model.eval()
    inference_model = poptorch.inferenceModel(model, poptorch.Options())
    print(inference_model(tokens, mask).argmax(-1).tolist())


if __name__ == "__main__":
    main(sys.argv[1:])
