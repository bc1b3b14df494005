"""Continued pre-training of a causal language model with the Trainer, in blocks of one length."""
import logging
import math
import os
from itertools import chain

import torch
from datasets import load_dataset
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    get_linear_schedule_with_warmup,
)

logger = logging.getLogger(__name__)
BLOCK = 1024


def group_texts(examples):
    joined = {k: list(chain(*examples[k])) for k in examples}
    total = len(joined["input_ids"]) // BLOCK * BLOCK
    result = {k: [t[i : i + BLOCK] for i in range(0, total, BLOCK)] for k, t in joined.items()}
    result["labels"] = result["input_ids"].copy()
    return result


def freeze_lower_layers(model, num_layers):
    for block in model.transformer.h[:num_layers]:
        for p in block.parameters():
            p.requires_grad = False


class TokensPerSecond(Trainer):
    def training_step(self, model, inputs, *args):
        loss = super().training_step(model, inputs, *args)
        logger.info("loss %.4f", loss.item())  # finds: D020
        torch.cuda.empty_cache()
        return loss


def main():
    logging.basicConfig(level=logging.INFO)
    local_rank = int(os.environ.get("LOCAL_RANK", -1))
    if local_rank != -1:
        torch.cuda.set_device(local_rank)
        torch.distributed.init_process_group(backend="nccl")  # finds: D018
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    config = AutoConfig.from_pretrained("gpt2")
    model = AutoModelForCausalLM.from_pretrained("gpt2", config=config)
    model.resize_token_embeddings(len(tokenizer))
    freeze_lower_layers(model, 4)
    raw = load_dataset("wikitext", "wikitext-103-raw-v1")
    tokenized = raw.map(lambda e: tokenizer(e["text"]), batched=True, num_proc=8, remove_columns=["text"])
    blocks = tokenized.map(group_texts, batched=True, num_proc=8)
    args = TrainingArguments(
        output_dir="clm",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
        bf16=True,  # finds: P013
        torch_compile=True,  # finds: D012
        logging_steps=100,
        save_steps=1000,
        dataloader_drop_last=True,
        max_steps=20000,
    )
    decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
    rest = [p for n, p in model.named_parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=2e-4, fused=True)
    scheduler = get_linear_schedule_with_warmup(optimizer, 500, args.max_steps)
    trainer = TokensPerSecond(
        model=model,
        args=args,
        train_dataset=blocks["train"],
        eval_dataset=blocks["validation"],
        data_collator=default_data_collator,
        optimizers=(optimizer, scheduler),
    )
    result = trainer.train(resume_from_checkpoint=None)
    trainer.log_metrics("train", result.metrics)
    metrics = trainer.evaluate()
    print("perplexity", math.exp(metrics["eval_loss"]))
    trainer.save_model("clm/final")


if __name__ == "__main__":
    main()
