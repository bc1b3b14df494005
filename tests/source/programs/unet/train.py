import argparse
import logging
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, random_split
from tqdm import tqdm

import wandb
from data_loading import BasicDataset
from dice_score import dice_loss
from evaluate import evaluate
from unet_model import UNet

dir_checkpoint = Path("./checkpoints/")


def train_model(
    model, device, epochs=5, batch_size=1, learning_rate=1e-5, val_percent=0.1, amp=False, gradient_clipping=1.0
):
    dataset = BasicDataset("./data/imgs/", "./data/masks/", 0.5)
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))

    loader_args = dict(batch_size=batch_size, num_workers=4, pin_memory=True)
    train_loader = DataLoader(train_set, shuffle=True, **loader_args)  # finds: B010
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)  # finds: B014
    experiment = wandb.init(project="U-Net", resume="allow", anonymous="must")

    optimizer = optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.999, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    grad_scaler = torch.cuda.amp.GradScaler(enabled=amp)  # finds: O010
    criterion = nn.CrossEntropyLoss() if model.n_classes > 1 else nn.BCEWithLogitsLoss()
    global_step = 0

    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        with tqdm(total=n_train, desc=f"Epoch {epoch}/{epochs}", unit="img") as pbar:
            for batch in train_loader:
                images, true_masks = batch["image"], batch["mask"]
                images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
                true_masks = true_masks.to(device=device, dtype=torch.long)

                with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=amp):  # finds: P013
                    masks_pred = model(images)
                    loss = criterion(masks_pred, true_masks)  # finds: L001
                    loss += dice_loss(F.softmax(masks_pred, dim=1).float(), true_masks)  # finds: L001

                optimizer.zero_grad(set_to_none=True)  # finds: O008
                grad_scaler.scale(loss).backward()  # finds: L010
                grad_scaler.unscale_(optimizer)  # finds: O010
                torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)  # finds: O009
                grad_scaler.step(optimizer)  # finds: O007
                grad_scaler.update()  # finds: O010

                pbar.update(images.shape[0])
                global_step += 1
                epoch_loss += loss.item()  # finds: D020
                experiment.log({"train loss": loss.item(), "step": global_step, "epoch": epoch})  # finds: D020
                pbar.set_postfix(**{"loss (batch)": loss.item()})  # finds: D020

                division_step = n_train // (5 * batch_size)
                if division_step > 0:
                    if global_step % division_step == 0:
                        val_score = evaluate(model, val_loader, device, amp)
                        scheduler.step(val_score)  # finds: O013
                        logging.info("Validation Dice score: {}".format(val_score))

        Path(dir_checkpoint).mkdir(parents=True, exist_ok=True)
        state_dict = model.state_dict()
        torch.save(state_dict, str(dir_checkpoint / "checkpoint_epoch{}.pth".format(epoch)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", "-e", type=int, default=5)
    parser.add_argument("--amp", action="store_true", default=False)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = UNet(n_channels=3, n_classes=2)
    model = model.to(memory_format=torch.channels_last)
    model.to(device=device)
    train_model(model=model, epochs=args.epochs, device=device, amp=args.amp)
