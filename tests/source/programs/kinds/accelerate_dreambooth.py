"""Textual inversion: one new embedding is learnt, everything else is frozen."""
import argparse
import itertools
import math
import random

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from torch.utils.data import DataLoader
from transformers import CLIPTextModel, CLIPTokenizer

from concept import ConceptDataset

TOKEN = "<concept>"


def freeze(parameters):
    for p in parameters:
        p.requires_grad = False


def collate(examples):
    pixels = torch.stack([e["pixels"] for e in examples]).to(memory_format=torch.contiguous_format).float()
    ids = torch.cat([e["input_ids"] for e in examples])
    return {"pixels": pixels, "input_ids": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--max_train_steps", type=int, default=3000)
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--offload", action="store_true")
    args = parser.parse_args()
    set_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulation, mixed_precision="fp16")  # finds: P013
    tokenizer = CLIPTokenizer.from_pretrained(args.model, subfolder="tokenizer")
    text_encoder = CLIPTextModel.from_pretrained(args.model, subfolder="text_encoder")
    vae = AutoencoderKL.from_pretrained(args.model, subfolder="vae")
    unet = UNet2DConditionModel.from_pretrained(args.model, subfolder="unet")
    noise_scheduler = DDPMScheduler.from_pretrained(args.model, subfolder="scheduler")
    tokenizer.add_tokens(TOKEN)
    placeholder = tokenizer.convert_tokens_to_ids(TOKEN)
    text_encoder.resize_token_embeddings(len(tokenizer))
    freeze(vae.parameters())
    freeze(unet.parameters())
    freeze(itertools.chain(text_encoder.text_model.encoder.parameters(), text_encoder.text_model.final_layer_norm.parameters()))
    unet.enable_gradient_checkpointing()
    dataset = ConceptDataset(args.data, tokenizer, TOKEN)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, collate_fn=collate, num_workers=2, drop_last=True)  # finds: B014
    optimizer = torch.optim.AdamW(text_encoder.get_input_embeddings().parameters(), lr=args.lr)
    num_epochs = math.ceil(args.max_train_steps / math.ceil(len(loader) / args.accumulation))
    text_encoder, optimizer, loader = accelerator.prepare(text_encoder, optimizer, loader)
    dtype = torch.float16 if accelerator.mixed_precision == "fp16" else torch.float32
    vae.to(accelerator.device, dtype=dtype)
    unet.to(accelerator.device, dtype=dtype)
    original = accelerator.unwrap_model(text_encoder).get_input_embeddings().weight.data.clone()
    step = 0
    for epoch in range(num_epochs):
        text_encoder.train()
        for batch in loader:
            with accelerator.accumulate(text_encoder):  # finds: O011
                with torch.no_grad():
                    latents = vae.encode(batch["pixels"].to(dtype)).latent_dist.sample() * 0.18215
                noise = torch.randn_like(latents)
                t = torch.randint(0, noise_scheduler.config.num_train_timesteps, (latents.shape[0],), device=latents.device)
                noisy = noise_scheduler.add_noise(latents, noise, t)
                if random.random() < 0.1:
                    batch["input_ids"] = torch.zeros_like(batch["input_ids"])
                states = text_encoder(batch["input_ids"])[0].to(dtype)
                predicted = unet(noisy, t, states).sample
                loss = F.mse_loss(predicted.float(), noise.float())  # finds: L001
                accelerator.backward(loss)  # finds: L010
                embeddings = accelerator.unwrap_model(text_encoder).get_input_embeddings()
                keep = torch.arange(len(tokenizer)) != placeholder
                embeddings.weight.grad.data[keep] = 0  # finds: D009
                optimizer.step()  # finds: O007
                optimizer.zero_grad()  # finds: O008
                with torch.no_grad():
                    embeddings.weight[keep] = original[keep]  # finds: C006
            step += 1
            if step % 50 == 0:
                print(f"{step}: {accelerator.gather(loss).mean().item():.4f}")
            if step >= args.max_train_steps:
                break
    accelerator.wait_for_everyone()
    learned = accelerator.unwrap_model(text_encoder).get_input_embeddings().weight[placeholder]
    accelerator.save({TOKEN: learned.detach().cpu()}, "learned.bin")


if __name__ == "__main__":
    main()
