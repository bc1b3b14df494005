"""Training of a small unconditional diffusion model, as the examples of diffusers do it."""
import argparse
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from datasets import load_dataset
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel
from torchvision import transforms
from tqdm.auto import tqdm

logger = get_logger(__name__)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset_name", default="huggan/flowers-102-categories")
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--train_batch_size", type=int, default=16)
    parser.add_argument("--num_epochs", type=int, default=100)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--mixed_precision", default="no", choices=["no", "fp16", "bf16"])
    parser.add_argument("--use_ema", action="store_true")
    parser.add_argument("--output_dir", default="ddpm-64")
    parser.add_argument("--checkpointing_steps", type=int, default=500)
    return parser.parse_args()


def extract(values, timesteps, shape):
    res = values.to(timesteps.device)[timesteps].float()
    while len(res.shape) < len(shape):
        res = res[..., None]
    return res.expand(shape)


def main(args):
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        mixed_precision=args.mixed_precision,  # finds: P013
        log_with="tensorboard",
        project_dir=args.output_dir,
    )
    if accelerator.is_main_process:
        os.makedirs(args.output_dir, exist_ok=True)
    model = UNet2DModel(sample_size=args.resolution, in_channels=3, out_channels=3, layers_per_block=2)
    ema = EMAModel(model.parameters(), decay=0.9999) if args.use_ema else None
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.95, 0.999), weight_decay=1e-6)
    augment = transforms.Compose([
        transforms.Resize(args.resolution),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.5], [0.5]),
    ])
    dataset = load_dataset(args.dataset_name, split="train")
    dataset.set_transform(lambda e: {"input": [augment(image.convert("RGB")) for image in e["image"]]})
    train_dataloader = torch.utils.data.DataLoader(  # finds: B010, B017
        dataset, batch_size=args.train_batch_size, shuffle=True
    )
    lr_scheduler = get_scheduler(
        "cosine",
        optimizer=optimizer,
        num_warmup_steps=500,
        num_training_steps=len(train_dataloader) * args.num_epochs,  # finds: B016
    )
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(model, optimizer, train_dataloader, lr_scheduler)
    if ema is not None:
        ema.to(accelerator.device)
    global_step = 0
    for epoch in range(args.num_epochs):
        model.train()
        bar = tqdm(total=len(train_dataloader), disable=not accelerator.is_local_main_process)
        for step, batch in enumerate(train_dataloader):
            clean = batch["input"]
            noise = torch.randn(clean.shape, device=clean.device)
            timesteps = torch.randint(0, 1000, (clean.shape[0],), device=clean.device).long()
            noisy = noise_scheduler.add_noise(clean, noise, timesteps)
            with accelerator.accumulate(model):  # finds: O011
                predicted = model(noisy, timesteps).sample
                snr = extract(noise_scheduler.alphas_cumprod, timesteps, clean.shape)
                loss = F.mse_loss(predicted, noise, reduction="none") * snr.clamp(max=5.0)  # finds: L001
                loss = loss.mean()
                accelerator.backward(loss)  # finds: L010
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)  # finds: O009
                optimizer.step()  # finds: O007
                lr_scheduler.step()  # finds: O013
                optimizer.zero_grad()  # finds: O008
            if accelerator.sync_gradients:
                if ema is not None:
                    ema.step(model.parameters())
                bar.update(1)
                global_step += 1
                if global_step % args.checkpointing_steps == 0 and accelerator.is_main_process:
                    accelerator.save_state(str(Path(args.output_dir) / f"checkpoint-{global_step}"))
            logs = {"loss": loss.detach().item(), "lr": lr_scheduler.get_last_lr()[0], "step": global_step}  # finds: D020
            bar.set_postfix(**logs)
            accelerator.log(logs, step=global_step)
        bar.close()
        if accelerator.is_main_process and (epoch + 1) % 10 == 0:
            unet = accelerator.unwrap_model(model)
            pipeline = DDPMPipeline(unet=unet, scheduler=noise_scheduler)
            pipeline.save_pretrained(args.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main(parse_args())
