"""Fine-tuning a causal language model with accelerate, mixed precision and FSDP."""
import math
import os

import torch
import torch.distributed as dist
from accelerate import Accelerator
from datasets import load_dataset
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class Config:
    model = "meta-llama/Llama-2-7b-hf"
    batch_size = 4
    lr = 2e-5
    epochs = 3
    accumulation = 8
    clip = 1.0


def collate(batch):
    input_ids = pad_sequence([torch.tensor(b["input_ids"]) for b in batch], batch_first=True)  # finds: B018
    labels = input_ids.clone()
    labels[input_ids == 0] = -100
    return {"input_ids": input_ids, "labels": labels}


def setup():
    dist.init_process_group("nccl")  # finds: D018
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # finds: D013


def evaluate(model, loader):
    model.eval()  # finds: D014
    losses = []
    for batch in loader:
        with torch.no_grad():
            out = model(**batch)
        losses.append(out.loss.item())  # finds: D020
    model.train()
    return math.exp(sum(losses) / len(losses))


def main():
    cfg = Config()
    setup()
    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, torch_dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    model = FSDP(model, device_id=torch.cuda.current_device())  # finds: D012, D013
    data = load_dataset("tatsu-lab/alpaca").map(lambda x: tokenizer(x["text"], truncation=True, max_length=512))
    train_loader = DataLoader(data["train"], batch_size=cfg.batch_size, shuffle=True, collate_fn=collate)  # finds: B010
    eval_loader = DataLoader(data["test"], batch_size=cfg.batch_size, collate_fn=collate)  # finds: B010
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1)
    num_steps = cfg.epochs * len(train_loader) // cfg.accumulation  # finds: B016
    scheduler = get_cosine_schedule_with_warmup(optimizer, 100, num_steps)
    step = 0
    for epoch in range(cfg.epochs):
        for i, batch in enumerate(train_loader):
            batch = {k: v.cuda() for k, v in batch.items()}  # finds: D013
            with torch.autocast("cuda", dtype=torch.bfloat16):  # finds: P013
                out = model(**batch)
            loss = out.loss / cfg.accumulation
            loss.backward()  # finds: L010
            if (i + 1) % cfg.accumulation == 0:  # finds: O011
                model.clip_grad_norm_(cfg.clip)  # finds: O009
                optimizer.step()  # finds: O007
                scheduler.step()  # finds: O013
                optimizer.zero_grad(set_to_none=True)  # finds: O008
                step += 1
                if dist.get_rank() == 0:
                    print(f"step {step} loss {loss.item() * cfg.accumulation:.3f}")  # finds: D020
        ppl = evaluate(model, eval_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} perplexity {ppl:.2f}")
            torch.save(model.state_dict(), f"model_{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
